"""The lives of a broker on one machine: how each ends, and that the next one begins well.

A process ends cleanly, by a kill, or by a power failure; it may also crash or fail while it
starts. Every life begins with an audit of what the last one left.
"""

from __future__ import annotations

from random import Random as Generator
from typing import Protocol

from ottla.model.errors import ApiError
from ottla.sim.audit import Audit
from ottla.sim.channel import Handled
from ottla.sim.cluster_model import ClusterModel
from ottla.sim.edge import SimEdge
from ottla.sim.exchange import Violation, make_exchange
from ottla.sim.faults import Crash
from ottla.sim.judge import leave_open
from ottla.sim.machine import LISTENER, Machine
from ottla.sim.moment import Moment
from ottla.sim.partition_model import End
from ottla.wire.message import Message


class Onlooker(Protocol):
    """Who watches the broker live and die."""

    def note(self, text: str) -> None: ...

    def take_replies(self, new: list[Handled], woken: list[Handled]) -> None:
        """Write down what was answered, without judging it."""
        ...

    def watch(self, edge: SimEdge) -> None:
        """A broker runs: listen to its edge."""
        ...

    def ended(self, end: End) -> None:
        """The broker has ended: connections are gone."""
        ...


class Lives:
    """`begin` the first one; the others follow from how each ends."""

    def __init__(
        self,
        machine: Machine,
        model: ClusterModel,
        moment: Moment,
        onlooker: Onlooker,
        chance: Generator,
        *,
        power_fails: bool,
    ) -> None:
        self._machine = machine
        self._model = model
        self._moment = moment
        self._onlooker = onlooker
        self._chance = chance
        self._power_fails = power_fails
        self._next_end = End.KILL

    # -- ends ----------------------------------------------------------------------------

    def crash_soon(self, end: End) -> None:
        """At once, or in the middle of one of the next operations of the disk."""
        self._next_end = end
        if self._chance.random() < 0.2:
            self._machine.kill()
            raise Crash
        self._machine.faults.operations_until_crash = self._chance.randrange(40)

    def crashed(self) -> None:
        """The process has crashed: begin another."""
        self._ended(self._next_end)
        self._begin_again()

    def restart_cleanly(self) -> None:
        """Stop the broker and start it again."""
        trouble = self._moment.io_errors or self._moment.is_full
        self._machine.stop()
        self._ended(End.KILL if trouble else End.CLEAN)
        self._begin_again()

    def finish(self) -> None:
        """Heal everything, stop cleanly, pull the plug for good measure, and read it all."""
        self._machine.faults.heal()
        self._machine.stop()
        if self._moment.io_errors:
            self._ended(End.POWER)
        else:
            self._ended(End.CLEAN)
            self._machine.lose_power()
        self.begin()

    def _ended(self, end: End) -> None:
        """What was begun is open, what was answered holds."""
        edge = self._machine.edge
        if edge is not None:
            for handled in edge.open_requests():
                leave_open(self._model, handled.exchange, self._moment)
            for channel in edge.channels:
                channel.closed = True
        if self._must_reboot():
            end = End.POWER
        if end is End.POWER:
            self._lose_power()
        else:
            self._machine.kill()
        for place in self._model.places():
            place.partition.ended(end)
        self._machine.node = self._machine.edge = None
        self._onlooker.note(f"the broker has ended: {end.value}")
        self._onlooker.ended(end)

    def _lose_power(self) -> None:
        points = {str(name): point for name, point in self._machine.lose_power().items()}
        for place in self._model.places():
            partition = place.partition
            partition.durable_end = max(partition.durable_end, points.get(partition.name, 0))

    def _must_reboot(self) -> bool:
        """Whether a failed sync has left records that can be read and never will be on disk.

        The next process could not know. Whoever runs a broker boots the machine then.
        """
        return any(
            self._machine.has_forgotten(place.topic.name, place.partition_index)
            for place in self._model.places()
        )

    # -- beginnings ----------------------------------------------------------------------

    def _begin_again(self) -> None:
        """Start the broker, which may crash or fail while it starts, until it runs."""
        clock, faults = self._machine.clock, self._machine.faults
        while True:
            clock.advance_to(clock.monotonic_ms() + self._chance.choice((1, 100, 3000)))
            if self._chance.random() < 0.7:
                faults.heal()
            crashes = self._chance.random() < 0.2
            faults.operations_until_crash = self._chance.randrange(60) if crashes else -1
            try:
                self.begin()
            except Crash:
                fails = self._power_fails and self._chance.random() < 0.5
                self._ended(End.POWER if fails else End.KILL)
            except (OSError, ApiError) as error:
                if not self._moment.io_errors and not self._moment.is_full:
                    raise
                self._onlooker.note(f"the broker did not start: {error}")
                self._ended(End.KILL)
                faults.heal()
            else:
                return

    def begin(self) -> None:
        """Start the broker on what the disk holds, and audit that."""
        self._moment.begin_life()
        self._machine.start()
        self._onlooker.note("the broker has started")
        edge = self._machine.edge
        assert edge is not None
        edge.on_settled = self._onlooker.take_replies
        self._audit(edge)
        self._onlooker.watch(edge)
        self._next_end = End.KILL

    def _audit(self, edge: SimEdge) -> None:
        """Read everything; nothing crashes meanwhile, though a broken disk stays broken."""
        faults = self._machine.faults
        armed, faults.operations_until_crash = faults.operations_until_crash, -1
        channel = edge.connect(LISTENER, lambda data: None, _nothing)

        def ask(request: Message, version: int) -> Message:
            exchange = make_exchange("audit", 1, request, version)
            channel.requests.append(exchange)
            channel.inbox += exchange.frame
            edge.wake([])
            if exchange.reply is None:
                raise Violation(f"{exchange!r}: not answered at once")
            return exchange.reply

        Audit(self._model, ask, self._moment).run()
        edge.close(channel)
        faults.operations_until_crash = armed


def _nothing() -> None:
    """Nobody listens."""
