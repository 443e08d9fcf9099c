"""Ends the broker's process on one machine, and starts the next one on what is left.

A process ends cleanly, by a kill, or by a power failure; it may also crash or fail while it
starts. Every process begins with an audit of what the last one left.
"""

from __future__ import annotations

from random import Random as Generator
from typing import Protocol

from ottla.model.errors import ApiError
from ottla.sim.disk.faults import Crash
from ottla.sim.judges.answers import leave_open
from ottla.sim.judges.audit import Audit
from ottla.sim.judges.conditions import Conditions
from ottla.sim.machine import LISTENER, Machine
from ottla.sim.model.cluster import ClusterModel
from ottla.sim.model.partition import End
from ottla.sim.network.event_loop import SimLoop
from ottla.sim.network.exchange import Violation, make_exchange
from ottla.sim.network.recorder import Settled
from ottla.wire.message import Message


class RestartListener(Protocol):
    """Called when the broker starts and ends."""

    def note(self, text: str) -> None: ...

    def pass_time(self, duration_ms: float) -> None:
        """Let time pass while no broker runs."""
        ...

    def take_replies(self, settled: Settled) -> None:
        """Write down what was answered, without judging it."""
        ...

    def watch(self, loop: SimLoop) -> None:
        """Listen to the loop of a broker that has started."""
        ...

    def ended(self, end: End) -> None:
        """Take note that the broker has ended: connections are gone."""
        ...


class Restarts:
    """`begin` the first process; the others follow from how each ends."""

    def __init__(
        self,
        machine: Machine,
        model: ClusterModel,
        conditions: Conditions,
        listener: RestartListener,
        chance: Generator,
        *,
        power_fails: bool,
    ) -> None:
        self._machine = machine
        self._model = model
        self._conditions = conditions
        self._listener = listener
        self._chance = chance
        self._power_fails = power_fails
        self._next_end = End.KILL

    # -- ends ----------------------------------------------------------------------------

    def crash_soon(self, end: End) -> None:
        """Crash at once, or in the middle of one of the next operations of the disk."""
        self._next_end = end
        if self._chance.random() < 0.2:
            self._machine.kill()
            raise Crash
        self._machine.faults.operations_until_crash = self._chance.randrange(40)

    def crashed(self) -> None:
        """Take note of a crash, and begin another process."""
        self._ended(self._next_end)
        self._begin_again()

    def restart_cleanly(self) -> None:
        """Stop the broker and start it again."""
        trouble = self._conditions.io_errors or self._conditions.is_full
        self._machine.stop()
        self._ended(End.KILL if trouble else End.CLEAN)
        self._begin_again()

    def finish(self) -> None:
        """Heal everything, stop cleanly, lose power, start again and compare everything."""
        self._machine.faults.heal()
        self._machine.stop()
        if self._conditions.io_errors:
            self._ended(End.POWER)
        else:
            self._ended(End.CLEAN)
            self._machine.lose_power()
        self.begin()

    def _ended(self, end: End) -> None:
        """End a process: what it had begun is open, what it had answered holds."""
        loop = self._machine.loop
        if loop is not None:
            for handled in loop.recorder.open_requests():
                if not handled.waits:
                    leave_open(self._model, handled.exchange, self._conditions)
            for stream in loop.streams():
                stream.closed = True
        if self._must_reboot():
            end = End.POWER
        if end is End.POWER:
            self._lose_power()
        else:
            self._machine.kill()
        for place in self._model.places():
            place.partition.ended(end)
        self._machine.node = self._machine.loop = None
        self._listener.note(f"the broker has ended: {end.value}")
        self._listener.ended(end)

    def _lose_power(self) -> None:
        points = {str(name): point for name, point in self._machine.lose_power().items()}
        self._model.groups.lose_power(
            {
                group_id: points.get(str(self._machine.offsets_partition(group_id)), 0)
                for group_id in {key.group_id for key in self._model.groups.offsets}
            }
        )
        for place in self._model.places():
            partition = place.partition
            partition.durable_end = max(partition.durable_end, points.get(partition.name, 0))

    def _must_reboot(self) -> bool:
        """Return whether a failed sync has left records that can be read and never will be on disk.

        The next process could not know. Whoever runs a broker boots the machine then.
        """
        return any(
            self._machine.has_forgotten(place.topic.name, place.partition_index)
            for place in self._model.places()
        ) or any(
            self._machine.has_forgotten(*self._machine.offsets_partition(key.group_id))
            for key in self._model.groups.offsets
        )

    # -- beginnings ----------------------------------------------------------------------

    def _begin_again(self) -> None:
        """Start the broker, which may crash or fail while it starts, until it runs."""
        faults = self._machine.faults
        while True:
            self._listener.pass_time(self._chance.choice((1, 100, 3000)))
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
                if not self._conditions.io_errors and not self._conditions.is_full:
                    raise
                self._listener.note(f"the broker did not start: {error}")
                self._ended(End.KILL)
                faults.heal()
            else:
                return

    def begin(self) -> None:
        """Start the broker on what the disk holds, and audit that."""
        self._conditions.process_started()
        self._model.groups.restarted()
        self._machine.start()
        self._listener.note("the broker has started")
        loop = self._machine.loop
        assert loop is not None
        loop.recorder.on_settled = self._listener.take_replies
        self._audit(loop)
        self._machine.begin_pauses()
        self._listener.watch(loop)
        self._next_end = End.KILL

    def _audit(self, loop: SimLoop) -> None:
        """Read everything; nothing crashes meanwhile, though a broken disk stays broken."""
        faults = self._machine.faults
        armed, faults.operations_until_crash = faults.operations_until_crash, -1
        stream = loop.connect(LISTENER, lambda data: None, _nothing)

        def ask(request: Message, version: int) -> Message:
            exchange = make_exchange("audit", 1, request, version)
            stream.requests.append(exchange)
            stream.arrive(exchange.frame)
            loop.wake([])
            if exchange.reply is None:
                raise Violation(f"{exchange!r}: not answered at once")
            return exchange.reply

        Audit(self._model, ask, self._conditions).run()
        loop.close(stream)
        faults.operations_until_crash = armed


def _nothing() -> None:
    """Do nothing: nobody listens."""
