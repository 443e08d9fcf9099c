"""The HelperProcesses port: one helper process for each lane, usually one in all.

A broker has no helper process before the first task, and does not import what runs one either.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ottla.ports import Buffer, TaskFailed

if TYPE_CHECKING:
    from ottla.server.helper_processes import HelperProcess

LANE_TIME_LIMIT_S: Final = 120
"""How long a task may take in a lane of its own, where others do not wait behind it.

No client waits for such tasks.
"""


class HelperLanes:
    """The HelperProcesses port: a process for each lane that has work."""

    def __init__(self, wake_loop: Callable[[], None]) -> None:
        self._wake_loop = wake_loop
        self._lanes: dict[str, HelperProcess] = {}

    @property
    def pids(self) -> dict[str, int]:
        """The process id of each lane that has a process."""
        return {name: lane.pid for name, lane in self._lanes.items() if lane.pid is not None}

    def submit(
        self,
        task: str,
        data: Buffer,
        done: Callable[[bytes | TaskFailed], None],
        lane: str = "",
    ) -> None:
        """Run a task in the process of a lane, then `done` on the loop."""
        process = self._lanes.get(lane)
        if process is None:
            from ottla.server.helper_processes import TIME_LIMIT_S, HelperProcess

            limit_s = LANE_TIME_LIMIT_S if lane else TIME_LIMIT_S
            process = HelperProcess(self._wake_loop, limit_s, is_background=bool(lane))
            self._lanes[lane] = process
        process.submit(task, data, done)

    def deliver(self) -> list[Callable[..., object]]:
        """Hand finished results over; called on the loop. Return what took them."""
        takers: list[Callable[..., object]] = []
        for lane in list(self._lanes.values()):
            takers += lane.deliver()
        return takers

    def stop(self) -> None:
        """End all processes at once. Tasks that are not done are forgotten."""
        for lane in self._lanes.values():
            lane.stop()
