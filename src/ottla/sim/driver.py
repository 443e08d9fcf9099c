"""Drives one machine along the time line: wakes its loop, runs its background thread."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil
from random import Random as Generator
from typing import Final

from ottla.sim.background import DeferredBackground
from ottla.sim.disk.faults import Crash
from ottla.sim.machine import Machine
from ottla.sim.network.event_loop import SimLoop
from ottla.sim.network.stream import SimStream
from ottla.sim.timeline import Timeline

_TICKS_PER_MS: Final = 64


class MachineDriver:
    """Decides by chance when background work runs, and when slow peers take bytes again.

    The machine's monotonic clock starts `clock_offset_ms` ahead of the time line and runs
    `clock_rate` times as fast. While `is_paused`, the process does nothing, and its clock goes on.
    """

    def __init__(
        self,
        machine: Machine,
        timeline: Timeline,
        chance: Generator,
        *,
        clock_offset_ms: float = 0.0,
        clock_rate: float = 1.0,
    ) -> None:
        self.machine = machine
        self._timeline = timeline
        self._chance = chance
        self._clock_offset_ms = clock_offset_ms
        self._clock_rate = clock_rate
        self._is_paused = False
        self._held: list[Callable[[], None]] = []
        """What the background thread would have done while the process was paused."""
        self.on_crash: Callable[[], None] | None = None
        """Called when the process has crashed in the background; None lets Crash through."""
        self._writable: list[SimStream] = []
        self._has_results = False
        machine.on_submit = self._plan_work
        machine.on_result = self._plan_result
        self.follow_clock()

    # -- time ----------------------------------------------------------------------------

    def follow_clock(self) -> None:
        """Set the machine's clock to the time line."""
        now_ms = self._timeline.now_ms
        self.machine.clock.advance_to(now_ms * self._clock_rate + self._clock_offset_ms)

    def next_deadline_ms(self) -> float | None:
        """Return when the node's next timer is due, on the time line."""
        node = self.machine.node
        deadline_ms = None if node is None or self._is_paused else node.next_deadline_ms()
        if deadline_ms is None or self._clock_rate == 1.0:
            return None if deadline_ms is None else deadline_ms - self._clock_offset_ms
        # Rounded up, so that the timer is surely due on the machine's clock then.
        time_ms = (deadline_ms - self._clock_offset_ms) / self._clock_rate
        return ceil(time_ms * _TICKS_PER_MS + 0.001) / _TICKS_PER_MS

    @property
    def is_ready(self) -> bool:
        """Whether the loop has something to do now, whatever the time."""
        loop = self.machine.loop
        return (
            not self._is_paused
            and loop is not None
            and bool(self._has_results or loop.has_calls or loop.engine.has_work or loop.has_events)
        )

    # -- the loop ------------------------------------------------------------------------

    def attend(self, loop: SimLoop) -> None:
        """Begin with the loop of a new process."""
        loop.on_blocked = self._plan_writable

    def forget(self) -> None:
        """Forget what was planned for a process that has ended."""
        self._writable.clear()
        self._held.clear()
        self._has_results = self._is_paused = False

    @property
    def is_paused(self) -> bool:
        return self._is_paused

    def pause(self) -> None:
        """Stop the process as SIGSTOP does: bytes arrive, and nobody takes them."""
        self._is_paused = True

    def resume(self) -> None:
        """Let the process go on."""
        self._is_paused = False
        held, self._held = self._held, []
        for act in held:
            act()

    def wake(self) -> bool:
        """Wake the loop up if something has happened; return whether it was."""
        loop = self.machine.loop
        if loop is None or self._is_paused:
            return False
        deadline_ms = self.next_deadline_ms()
        is_due = deadline_ms is not None and deadline_ms <= self._timeline.now_ms
        if not (is_due or self._writable or self.is_ready):
            return False
        writable, self._writable = self._writable, []
        self._has_results = False
        loop.wake(writable)
        return True

    def make_writable(self, stream: SimStream) -> None:
        """Let the next wake-up find that a stream takes bytes."""
        self._writable.append(stream)

    def _plan_writable(self, stream: SimStream) -> None:
        if not stream.connecting:
            delay_ms = self._chance.choice((0, 5, 100))
            self._timeline.after(delay_ms, lambda: self.make_writable(stream))

    # -- the background thread -----------------------------------------------------------

    def _plan_work(self) -> None:
        background = self.machine.background
        self._after((0, 1, 10, 200), background, background.run_one)

    def _plan_result(self) -> None:
        self._after((0, 0, 3, 50), self.machine.background, self._take_results)

    def _after(
        self,
        delays_ms: tuple[float, ...],
        background: DeferredBackground,
        action: Callable[[], object],
    ) -> None:
        """Do something after one of the delays, unless the process has ended by then."""

        def act() -> None:
            if self.machine.background is not background or self.machine.loop is None:
                return
            if self._is_paused:
                self._held.append(act)
                return
            try:
                action()
            except Crash:
                if self.on_crash is None:
                    raise
                self.on_crash()

        self._timeline.after(self._chance.choice(delays_ms), act)

    def _take_results(self) -> None:
        self._has_results = True
