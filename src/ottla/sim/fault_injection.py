"""What goes wrong in a run, and how often: crashes, full or failing disks, clock steps."""

from __future__ import annotations

from collections.abc import Callable
from random import Random as Generator

from ottla.sim.disk.faults import UNLIMITED
from ottla.sim.machine import Machine
from ottla.sim.model.partition import End
from ottla.sim.profile import Profile
from ottla.sim.restarts import Restarts


class FaultInjection:
    """Draws what happens next to the machine."""

    def __init__(
        self,
        machine: Machine,
        restarts: Restarts,
        profile: Profile,
        chance: Generator,
        note: Callable[[str], None],
        at: Callable[[float, Callable[[], None]], None],
    ) -> None:
        self._machine = machine
        self._chance = chance
        self._note = note
        self._at = at
        self._rates: tuple[tuple[float, Callable[[], None]], ...] = (
            (profile.kill_rate, lambda: restarts.crash_soon(End.KILL)),
            (profile.power_rate, lambda: restarts.crash_soon(End.POWER)),
            (profile.clean_rate, restarts.restart_cleanly),
            (profile.full_rate, self._fill_disk),
            (profile.error_rate, self._break_disk),
            (profile.wall_step_rate, self._step_wall),
        )

    def draw(self) -> None:
        """Let at most one thing go wrong; Crash if it ends the process at once."""
        dice = self._chance.random() * 1000
        for rate, action in self._rates:
            dice -= rate
            if dice < 0:
                action()
                return

    def _fill_disk(self) -> None:
        volume = self._chance.choice(self._machine.faults.volumes)
        volume.free_bytes = self._chance.choice((0, 100, 3000))
        self._note(f"{volume.path} has {volume.free_bytes} bytes left")

        def make_room() -> None:
            volume.free_bytes = UNLIMITED
            self._note(f"{volume.path} has room again")

        delay_ms = self._chance.choice((20, 500, 5000))
        self._at(self._machine.clock.monotonic_ms() + delay_ms, make_room)

    def _break_disk(self) -> None:
        volume = self._chance.choice(self._machine.faults.volumes)
        volume.eio_probability = self._chance.choice((1.0, 0.3, 0.05))
        self._note(f"{volume.path} fails with {volume.eio_probability}")

    def _step_wall(self) -> None:
        delta_ms = self._chance.choice((-3000, -20, 100, 5000))
        self._machine.clock.step_wall(delta_ms)
        self._note(f"the wall clock steps by {delta_ms}")
