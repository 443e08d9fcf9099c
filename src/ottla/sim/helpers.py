"""Two implementations of the HelperProcesses port.

`PromptHelpers` does a task before the next request is handled. Runs of seeds use it, because
their judges expect appends in the order of the requests.
`DeferredHelpers` does tasks later and in another order, and some fail. It is for runs that have
checks of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random as Generator

from ottla.broker.connection import Connection
from ottla.broker.node import Node
from ottla.ports import Background, Buffer, TaskFailed, run_task


class PromptHelpers:
    """Runs tasks right after the request that submitted them was handled."""

    def __init__(self) -> None:
        self._tasks: list[Callable[[], None]] = []
        self._node: Node | None = None

    def attach(self, node: Node) -> None:
        """Follow the requests of this node."""
        self._node = node
        handle = node.handle

        def handle_then_run(
            connection: Connection, buffer: bytearray, view: memoryview, start: int, end: int
        ) -> None:
            handle(connection, buffer, view, start, end)
            self._run()

        node.handle = handle_then_run

    def submit(
        self,
        task: str,
        data: Buffer,
        done: Callable[[bytes | TaskFailed], None],
        lane: str = "",
    ) -> None:
        """Run a task soon, before the wake-up's write at the latest."""
        assert self._node is not None
        self._tasks.append(lambda: done(run_task(task, data)))
        self._node.before_write.append(self._run)

    def _run(self) -> None:
        while self._tasks:
            self._tasks.pop(0)()


class DeferredHelpers:
    """Runs tasks as work in the background, at moments that the simulation picks.

    A task fails with the probability `failures`, and with the probability `delays` its result
    comes after those of tasks that were submitted later.
    """

    def __init__(
        self, background: Background, chance: Generator, failures: float = 0.0, delays: float = 0.0
    ) -> None:
        self._background = background
        self._chance = chance
        self._failures = failures
        self._delays = delays

    def submit(
        self,
        task: str,
        data: Buffer,
        done: Callable[[bytes | TaskFailed], None],
        lane: str = "",
    ) -> None:
        """Queue the task; `done` gets its result, or an error on purpose."""

        def work() -> bytes:
            if self._chance.random() < self._failures:
                raise OSError("the helper process failed on purpose")
            return run_task(task, data)

        def finish(result: bytes | OSError) -> None:
            if self._chance.random() < self._delays:
                self._background.submit(lambda: None, lambda nothing: finish(result))
            else:
                done(TaskFailed(str(result)) if isinstance(result, OSError) else result)

        self._background.submit(work, finish)
