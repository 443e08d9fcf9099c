"""Several machines on one time line, with a network between them, for tests.

Each machine has a disk, a clock with an offset of its own, and one broker. Nothing goes wrong
by itself: tests cut and heal the network, and kill and start brokers. Delays are drawn by
chance, so one seed is one run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from ottla.broker.node import Node
from ottla.sim.disk.faults import Crash
from ottla.sim.driver import MachineDriver
from ottla.sim.machine import LISTENER, Machine
from ottla.sim.network.exchange import Exchange, make_exchange
from ottla.sim.network.network import SimConnector, SimNetwork
from ottla.sim.network.recorder import answer_all
from ottla.sim.object_store import SharedObjects
from ottla.sim.script import QUIET, quiet_profile
from ottla.sim.seeded_random import generator
from ottla.sim.timeline import Timeline
from ottla.wire.message import Message

PORT: Final = 9092
CONTROLLER_PORT: Final = 9093
CONTROLLER: Final = "CONTROLLER"
CLUSTER_ID: Final = "sim-cluster-0000000000"


class SimCluster:
    """Brokers 1 to `count`, all running. Broker n is reached at `host_of(n)` and PORT."""

    def __init__(
        self,
        count: int,
        seed: int = 0,
        properties: Mapping[str, str] | None = None,
        *,
        are_one_cluster: bool = False,
        clock_rates: Mapping[int, float] | None = None,
        extra: int = 0,
        remote_tier: SharedObjects | None = None,
        on_start: Callable[[int, Machine], None] = lambda number, machine: None,
    ) -> None:
        """Start brokers, as one cluster or each as a cluster of its own.

        `clock_rates` says whose clocks run faster or slower than the time line. `extra` brokers
        beyond `count` have no vote and do not run yet. `remote_tier` is the object store of all of
        them. `on_start` is called with every process that starts.
        """
        self._on_start = on_start
        self.remote_tier = remote_tier
        self._clock_rates = clock_rates or {}
        self.on_end: Callable[[int], None] = lambda number: None
        """Called when the process of a broker has ended, for any reason."""
        self.after_wake: Callable[[int], None] = lambda number: None
        """Called after every wake-up of a broker."""
        self._voters = range(1, count + 1) if are_one_cluster else range(0)
        self.timeline = Timeline()
        self.network = SimNetwork(self.timeline, generator(seed, "network"))
        self._chance = generator(seed, "cluster")
        self._drivers: dict[int, MachineDriver] = {}
        for number in range(1, count + 1):
            self._add(number, seed, properties or {})
            self.start(number)
        for number in range(count + 1, count + extra + 1):
            self._add(number, seed, properties or {})

    def _add(self, number: int, seed: int, properties: Mapping[str, str]) -> None:
        settings = {
            **QUIET,
            "node.id": str(number),
            "listeners": f"{LISTENER}://{host_of(number)}:{PORT}",
            "log.dirs": "/data",
            **self._quorum_settings(number),
            **properties,
        }
        boot_ms = float(self._chance.randrange(1_000_000))
        profile = quiet_profile(tuple(settings["log.dirs"].split(",")), settings)
        machine = Machine(seed * 1000 + number, profile, boot_ms=boot_ms)
        machine.remote_tier = self.remote_tier
        driver = MachineDriver(
            machine,
            self.timeline,
            generator(seed, f"driver-{number}"),
            clock_offset_ms=boot_ms,
            clock_rate=self._clock_rates.get(number, 1.0),
        )
        driver.on_crash = lambda: self._crashed(number)
        machine.make_connector = lambda: SimConnector(self.network, driver)
        self.network.add_endpoint(host_of(number), PORT, driver)
        self.network.add_endpoint(host_of(number), CONTROLLER_PORT, driver, CONTROLLER)
        self._drivers[number] = driver

    def _quorum_settings(self, number: int) -> dict[str, str]:
        if not self._voters:
            return {}
        voters = ",".join(f"{each}@{host_of(each)}:{CONTROLLER_PORT}" for each in self._voters)
        host = host_of(number)
        if number not in self._voters:
            return {
                "cluster.id": CLUSTER_ID,
                "process.roles": "broker",
                "listeners": f"{LISTENER}://{host}:{PORT}",
                "controller.listener.names": CONTROLLER,
                "controller.quorum.voters": voters,
            }
        return {
            "cluster.id": CLUSTER_ID,
            "listeners": f"{LISTENER}://{host}:{PORT},{CONTROLLER}://{host}:{CONTROLLER_PORT}",
            "controller.listener.names": CONTROLLER,
            "controller.quorum.voters": voters,
        }

    # -- brokers -------------------------------------------------------------------------

    def machine(self, number: int) -> Machine:
        return self._drivers[number].machine

    def node(self, number: int) -> Node:
        node = self.machine(number).node
        assert node is not None, f"broker {number} does not run"
        return node

    def start(self, number: int) -> None:
        """Start a broker on what its disk holds."""
        driver = self._drivers[number]
        driver.machine.start()
        loop = driver.machine.loop
        assert loop is not None
        loop.recorder.on_settled = answer_all
        driver.attend(loop)
        self._on_start(number, driver.machine)

    def is_running(self, number: int) -> bool:
        """Return True if the broker's process is there, also if it is paused."""
        return self.machine(number).loop is not None

    def is_paused(self, number: int) -> bool:
        return self._drivers[number].is_paused

    def pause(self, number: int) -> None:
        """Stop a broker's process as SIGSTOP does."""
        self._drivers[number].pause()

    def resume(self, number: int) -> None:
        """Let a paused broker go on."""
        self._drivers[number].resume()

    def stop(self, number: int) -> None:
        """Stop a broker as SIGTERM does, once it has handed over what it leads."""
        node, machine = self.node(number), self.machine(number)
        loop = machine.loop
        assert loop is not None

        def left() -> None:
            if machine.node is node:
                loop.engine.settle()  # the loop ends with a whole wake-up
                machine.stop()
                raise Crash  # nothing of this wake-up happens any more

        loop.call(lambda: node.leave(lambda: loop.call(left)))

    def kill(self, number: int) -> None:
        """End a broker's process; its connections are closed."""
        self.machine(number).kill()
        self._ended(number, silently=False)

    def lose_power(self, number: int) -> None:
        """Lose all that a machine had not synced. Its peers do not notice."""
        self.machine(number).disk.lose_unsynced()
        self._ended(number, silently=True)

    def _crashed(self, number: int) -> None:
        self._ended(number, silently=False)

    def _ended(self, number: int, *, silently: bool) -> None:
        driver = self._drivers[number]
        self.network.process_ended(driver, silently=silently)
        driver.machine.node = driver.machine.loop = None
        driver.forget()
        self.on_end(number)

    # -- the network ---------------------------------------------------------------------

    def cut(self, one: int, other: int) -> None:
        """Let nothing through between two brokers."""
        self.network.cut(self._drivers[one], self._drivers[other])

    def cut_one_way(self, sender: int, target: int) -> None:
        """Let nothing of one broker arrive at another."""
        self.network.cut_one_way(self._drivers[sender], self._drivers[target])

    def heal(self, one: int, other: int) -> None:
        """Let everything through again."""
        self.network.heal(self._drivers[one], self._drivers[other])

    def drop(self, one: int, other: int) -> None:
        """Break the connections between two brokers."""
        self.network.drop(self._drivers[one], self._drivers[other])

    # -- time ----------------------------------------------------------------------------

    def run_for(self, duration_ms: float) -> None:
        """Let time pass, and everything happen that is due meanwhile."""
        self._run(lambda: False, self.timeline.now_ms + duration_ms)

    def run_until(self, condition: Callable[[], bool], at_most_ms: float = 60_000) -> None:
        """Let time pass until something has happened; raise AssertionError if it does not."""
        done = self._run(condition, self.timeline.now_ms + at_most_ms)
        assert done, f"it has not happened in {at_most_ms} ms"

    def _run(self, condition: Callable[[], bool], until_ms: float) -> bool:
        while not condition():
            time_ms = self._next_ms()
            if time_ms > until_ms:
                self._advance_to(until_ms)
                return False
            self._advance_to(time_ms)
            self.timeline.run_due()
            self._wake_all()
        return True

    def _next_ms(self) -> float:
        """Return when something happens next: now, if somebody has something to do."""
        now_ms = self.timeline.now_ms
        if any(driver.is_ready for driver in self._drivers.values()):
            return now_ms
        planned = [self.timeline.next_ms()]
        planned += [driver.next_deadline_ms() for driver in self._drivers.values()]
        return max(now_ms, min((each for each in planned if each is not None), default=1e18))

    def _advance_to(self, time_ms: float) -> None:
        self.timeline.advance_to(time_ms)
        for driver in self._drivers.values():
            driver.follow_clock()

    def _wake_all(self) -> None:
        numbers = list(self._drivers)
        self._chance.shuffle(numbers)
        for number in numbers:
            try:
                if self._drivers[number].wake():
                    self.after_wake(number)
            except Crash:
                self._crashed(number)

    # -- clients -------------------------------------------------------------------------

    def ask(self, number: int, request: Message, version: int, listener: str = LISTENER) -> Message:
        """Return a broker's answer to a client."""
        loop = self.machine(number).loop
        assert loop is not None
        exchange: Exchange = make_exchange("client", 1, request, version)
        stream = loop.connect(listener, lambda data: None, lambda: None)
        stream.requests.append(exchange)
        stream.arrive(exchange.frame)
        self.run_until(lambda: exchange.reply is not None)
        loop.close(stream)
        assert exchange.reply is not None
        return exchange.reply


def host_of(number: int) -> str:
    """Return the name by which a broker's machine is known to the others."""
    return f"broker-{number}"
