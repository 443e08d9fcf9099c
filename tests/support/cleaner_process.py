"""A log that is cleaned with a real helper process."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from ottla.log.cleaner import cleaning_task
from ottla.log.cleaner.clean_run import CleanRun, CleanSettings, CleanWorld
from ottla.log.cleaner.cleanable import cleanable
from ottla.log.cleaner.io_throttle import IoThrottle
from ottla.log.log import Log
from ottla.model.steps import Wait
from ottla.ports import TaskFailed
from ottla.server.helper_lanes import HelperLanes
from tests.support.cleaner import Done

CHUNK_BYTES = 2000


class CleanerProcess:
    """A real helper process, and the loop that waits for it."""

    def __init__(self) -> None:
        self._woken = threading.Semaphore(0)
        self.lanes = HelperLanes(self._woken.release)
        self.answers: list[bytes | TaskFailed] = []
        self._submitted = 0
        self.on_answer: Callable[[], object] = lambda: None
        self.serves_clients = False

    def clean(self, log: Log, *, is_large: bool, map_bytes: int = 1 << 20) -> None:
        """Clean a log; with `is_large`, as if it were so large that arrays are used."""
        plan = cleanable(log, log.resources.clock.wall_ms())
        if is_large:
            plan = plan._replace(clean_bytes=cleaning_task.ARRAYS_FROM_BYTES)
        world = CleanWorld(
            self._submit,
            lambda delay_ms, action: action(),
            lambda: True,
            lambda: self.serves_clients,
            IoThrottle(1e300),
        )
        run = CleanRun("test", plan, CleanSettings(map_bytes, 0.9, CHUNK_BYTES), world)
        for step in run.steps():
            while isinstance(step, Wait) and not step.is_over:
                assert self._woken.acquire(timeout=60)
                self.lanes.deliver()

    def finish(self) -> None:
        """Wait until the helper process has nothing to do."""
        while len(self.answers) < self._submitted:
            assert self._woken.acquire(timeout=60)
            self.lanes.deliver()

    def copies(self) -> list[int]:
        """Return the processes that the helper process has made."""
        pid = self.lanes.pids["c"]
        children = Path(f"/proc/{pid}/task/{pid}/children")
        return [int(each) for each in children.read_text().split()]

    def _submit(self, message: bytes, done: Done) -> None:
        def answered(result: bytes | TaskFailed) -> None:
            self.answers.append(result)
            self.on_answer()
            done(result)

        self._submitted += 1
        self.lanes.submit(cleaning_task.TASK, message, answered, "c")
