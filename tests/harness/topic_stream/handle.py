"""The test's side of a stream from topic to topic: its processes, and the end of them."""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from typing import NamedTuple

import psutil

from tests.harness.deadline import eventually
from tests.harness.process_tree import descendants, has_ended, is_java, is_python, kill, kill_tree
from tests.harness.supervised import Supervised
from tests.harness.topic_stream.spec import StreamSpec

ROOT = Path(__file__).parents[3]
FAILED = 1
START_TIMEOUT_S = 120.0
END_TIMEOUT_S = 60.0


class TopicStream(Supervised):
    """The driver of a stream. It is started again when it is killed or has lost its Java."""

    def __init__(
        self, spec: StreamSpec, log: Path, environment: dict[str, str] | None = None
    ) -> None:
        self._spec = spec
        self._seen: dict[int, psutil.Process] = {}
        super().__init__(
            [sys.executable, "-m", "tests.harness.topic_stream", spec.to_json()],
            log,
            restarts_on={FAILED},
            zombie_ends=(),
            stops=(),
            environment={**(environment or {}), "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
        )

    def kill_driver(self) -> None:
        """End the driver's Python process alone. Its Java process has to end by itself."""
        self.java()
        self.kill()

    def kill_java(self) -> None:
        """End the driver's Java process alone. The Python process has to end by itself."""
        kill(self.java())

    def kill_everything(self) -> None:
        """End the driver, its Java process and everything that this has started."""
        self.java()
        with self._lock:
            kill_tree(self._process.pid)
            self._process.wait()
            self._process = self._launch()

    def java(self) -> psutil.Process:
        """Return the Java process of the present driver. Wait for it if it starts just now."""
        found = eventually(self._java, "Java of the driver", START_TIMEOUT_S)
        self._seen[found.pid] = found
        return found

    def _java(self) -> psutil.Process | None:
        return next(filter(is_java, descendants(self._process.pid)), None)

    def python_processes(self) -> list[psutil.Process]:
        """Return the Python processes that Java has started: planners and workers."""
        return [each for each in descendants(self.java().pid) if is_python(each)]

    def await_end_of_java(self) -> None:
        """Wait until no Java process of a driver that was killed is left."""
        for process in self._seen.values():
            eventually(partial(has_ended, process), f"the end of {process}", END_TIMEOUT_S)

    def close(self) -> None:
        self._end_watch()
        kill_tree(self._process.pid)
        self._process.wait()
        for process in self._seen.values():
            kill(process)


class SpeculativeTasks(NamedTuple):
    """How many tasks Spark has started because another attempt was slow, and how many won."""

    started: int
    succeeded: int


def speculative_tasks(events: Path) -> SpeculativeTasks:
    """Count them in the event logs of all drivers."""
    started = succeeded = 0
    for file in events.rglob("*"):
        if not file.is_file():
            continue
        for line in file.read_bytes().splitlines():
            if b'"Speculative":true' not in line or not line.endswith(b"}"):
                continue
            event = json.loads(line)
            started += event["Event"] == "SparkListenerTaskStart"
            succeeded += (
                event["Event"] == "SparkListenerTaskEnd"
                and event["Task End Reason"]["Reason"] == "Success"
            )
    return SpeculativeTasks(started, succeeded)
