"""What goes wrong in a cluster: brokers that end, pause and come back, and networks that break."""

from __future__ import annotations

from collections.abc import Callable
from random import Random as Generator

from ottla.sim.cluster import SimCluster
from ottla.sim.cluster_run.profile import ClusterProfile
from ottla.sim.disk.faults import UNLIMITED, Crash
from ottla.sim.object_store import StoreFaults

_NETWORK = ("cut", "one_way", "isolate", "drop")
_BAD_STORES = (StoreFaults(unavailable=1.0), StoreFaults(0.2, 0.2, 0.3, 0.3))


class ClusterFaults:
    """Lets things go wrong, one after the other, each for a while."""

    def __init__(
        self,
        cluster: SimCluster,
        profile: ClusterProfile,
        chance: Generator,
        note: Callable[[str], None],
        favourite: Callable[[], int],
        is_dispensable: Callable[[int], bool],
    ) -> None:
        self._cluster = cluster
        self._profile = profile
        self._chance = chance
        self._note = note
        self._favourite = favourite
        """Returns a broker that leads something: whose loss matters most."""
        self._is_dispensable = is_dispensable
        """Returns True if all records of a broker are elsewhere."""
        self._numbers = range(1, profile.brokers + profile.extra_brokers + 1)
        self._is_over = False
        self._drawn = 0
        self._failing: set[int] = set()
        """Whose disk has failed since the process began: the machine is booted when it ends."""
        self._loses_power: set[int] = set()
        weights = {name: weight for name, weight in profile.weights.items() if weight > 0}
        self._wipes = weights.pop("wipe", 0.0)
        weights.pop("target_leader", None)
        self._kinds = list(weights)
        self._weights = list(weights.values())

    def begin(self) -> None:
        """Plan the first fault, and when the brokers join that were not there from the start."""
        self._plan_next()
        for number in self._numbers:
            if number > self._profile.brokers:
                self._later(lambda n=number: self.start(n))  # type: ignore[misc]

    def _plan_next(self) -> None:
        if self._kinds:
            pause_ms = self._chance.choice(self._profile.fault_pause_ms)
            self._cluster.timeline.after(pause_ms, self._draw)

    def _draw(self) -> None:
        if self._is_over or self._drawn == self._profile.most_faults:
            return
        self._drawn += 1
        (kind,) = self._chance.choices(self._kinds, self._weights)
        number = self._victim()
        if kind in _NETWORK or self._cluster.is_running(number):
            getattr(self, f"_{kind}")(number)
        self._plan_next()

    def _victim(self) -> int:
        if self._chance.random() * 4 < self._profile.weights["target_leader"]:
            return self._favourite()
        return self._chance.choice(self._numbers)

    def _later(self, action: Callable[[], None]) -> None:
        self._cluster.timeline.after(self._chance.choice(self._profile.outage_ms), action)

    # -- processes -----------------------------------------------------------------------

    def _kill(self, number: int) -> None:
        self._note(f"broker {number} is killed")
        self._cluster.kill(number)

    def _crash(self, number: int) -> None:
        """End a process in the middle of one of its next writes."""
        count = self._chance.choice((0, 1, 3, 10, 30))
        self._note(f"broker {number} will crash after {count} operations")
        self._cluster.machine(number).faults.operations_until_crash = count

    def _power(self, number: int) -> None:
        if self._chance.random() < 0.5:
            self._loses_power.add(number)
            self._crash(number)
            return
        self._note(f"machine {number} loses its power")
        if self._chance.random() < 0.5:
            self._cluster.machine(number).disk.lose_power()
        self._cluster.lose_power(number)

    def _stop(self, number: int) -> None:
        if not self._cluster.is_paused(number):
            self._note(f"broker {number} is told to stop")
            self._cluster.stop(number)

    def ended(self, number: int) -> None:
        """Start a broker again some time after its process has ended."""
        machine = self._cluster.machine(number)
        machine.faults.operations_until_crash = -1
        if number in self._loses_power or number in self._failing:
            self._loses_power.discard(number)
            self._failing.discard(number)
            machine.faults.heal()
            self._note(f"machine {number} loses its power")
            machine.disk.lose_power()
        self._note(f"broker {number} has ended")
        self._later(lambda: self.start(number))

    def start(self, number: int) -> None:
        """Start a broker that does not run."""
        if self._cluster.is_running(number):
            return
        self._wipe(number)
        self._note(f"broker {number} starts")
        try:
            self._cluster.start(number)
        except Crash:
            self._later(lambda: self.start(number))
        except OSError as error:
            self._note(f"broker {number} cannot start: {error}")
            self._cluster.machine(number).faults.heal()
            self._cluster.machine(number).kill()
            self._later(lambda: self.start(number))

    def _wipe(self, number: int) -> None:
        """Give a broker without a vote an empty disk, if nobody needs its records."""
        is_chosen = number > self._profile.brokers and self._chance.random() < self._wipes
        if is_chosen and not self._is_over and self._is_dispensable(number):
            self._note(f"machine {number} gets an empty disk")
            self._cluster.machine(number).faults.heal()
            self._cluster.machine(number).wipe()

    def _pause(self, number: int) -> None:
        node = self._cluster.machine(number).node
        self._note(f"broker {number} is paused")
        self._cluster.pause(number)

        def resume() -> None:
            if self._cluster.machine(number).node is node and self._cluster.is_paused(number):
                self._note(f"broker {number} goes on")
                self._cluster.resume(number)

        self._later(resume)

    def _wall(self, number: int) -> None:
        delta_ms = self._chance.choice((-3000, -20, 100, 5000))
        self._note(f"the wall clock of machine {number} steps by {delta_ms}")
        self._cluster.machine(number).clock.step_wall(delta_ms)

    # -- disks ---------------------------------------------------------------------------

    def _full(self, number: int) -> None:
        (volume,) = self._cluster.machine(number).faults.volumes
        volume.free_bytes = self._chance.choice((0, 100, 3000))
        self._note(f"the disk of machine {number} has {volume.free_bytes} bytes left")

        def make_room() -> None:
            self._note(f"the disk of machine {number} has room again")
            volume.free_bytes = UNLIMITED

        self._later(make_room)

    def _fail_disk(self, number: int) -> None:
        (volume,) = self._cluster.machine(number).faults.volumes
        volume.eio_probability = self._chance.choice((1.0, 0.3, 0.05))
        self._failing.add(number)
        self._note(f"the disk of machine {number} fails with {volume.eio_probability}")

    # -- the object store ----------------------------------------------------------------

    def _store(self, number: int) -> None:
        store = self._cluster.remote_tier
        assert store is not None
        faults = self._chance.choice(_BAD_STORES)
        self._note(f"the object store has {faults}")
        store.set_faults(faults)

        def heal() -> None:
            self._note("the object store is well")
            store.set_faults(StoreFaults())

        self._later(heal)

    # -- the network ---------------------------------------------------------------------

    def _other(self, number: int) -> int:
        return self._chance.choice([each for each in self._numbers if each != number])

    def _cut(self, number: int) -> None:
        other = self._other(number)
        self._note(f"{number} and {other} are cut off from each other")
        self._cluster.cut(number, other)
        self._later(lambda: self._heal(number, other))

    def _one_way(self, number: int) -> None:
        other = self._other(number)
        sender, target = (number, other) if self._chance.random() < 0.5 else (other, number)
        self._note(f"nothing of {sender} arrives at {target}")
        self._cluster.cut_one_way(sender, target)
        self._later(lambda: self._heal(number, other))

    def _isolate(self, number: int) -> None:
        self._note(f"{number} is cut off from all others")
        for other in self._numbers:
            if other != number:
                self._cluster.cut(number, other)

        def heal() -> None:
            for other in self._numbers:
                if other != number:
                    self._heal(number, other)

        self._later(heal)

    def _heal(self, one: int, other: int) -> None:
        self._note(f"{one} and {other} reach each other")
        self._cluster.heal(one, other)

    def _drop(self, number: int) -> None:
        other = self._other(number)
        self._note(f"the connections between {number} and {other} break")
        self._cluster.drop(number, other)

    # -- the end -------------------------------------------------------------------------

    def has_failed(self, number: int) -> bool:
        """Return True if a machine's disk has failed since its process began."""
        return number in self._failing

    def heal_all(self) -> None:
        """Let nothing go wrong any more: all brokers run and reach each other.

        A broker that is stopping comes back as well.
        """
        self._is_over = True
        for number in sorted(self._failing):
            if self._cluster.is_running(number):
                self._cluster.kill(number)
        self._loses_power.clear()
        if self._cluster.remote_tier is not None:
            self._cluster.remote_tier.set_faults(StoreFaults())
        for number in self._numbers:
            self._cluster.machine(number).faults.heal()
            for other in self._numbers:
                if other > number:
                    self._cluster.heal(number, other)
            if self._cluster.is_paused(number):
                self._cluster.resume(number)
            self.start(number)
