"""A run: clients, network, faults and crashes around the node that serves production.

Everything that happens is an event at a virtual time, picked by generators derived from
the seed; so a seed is a run, and its trace has one hash.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from ottla.sim.clients.admin import Administrator
from ottla.sim.clients.classic_member import ClassicMember
from ottla.sim.clients.client import Client
from ottla.sim.clients.connected_client import ConnectedClient
from ottla.sim.clients.consumer import Consumer
from ottla.sim.clients.consumer_member import ConsumerMember
from ottla.sim.clients.malformed import MalformedClient
from ottla.sim.clients.prober import Prober
from ottla.sim.clients.producer import IdempotentProducer, PlainProducer
from ottla.sim.disk.faults import Crash
from ottla.sim.driver import MachineDriver
from ottla.sim.fault_injection import FaultInjection
from ottla.sim.judges.answers import expect, judge, leave_open
from ottla.sim.judges.conditions import Conditions
from ottla.sim.judges.fetch import missed_data
from ottla.sim.machine import LISTENER, Machine
from ottla.sim.model.cluster import ClusterModel
from ottla.sim.model.partition import End
from ottla.sim.network.event_loop import SimLoop
from ottla.sim.network.exchange import Exchange, Violation, brief
from ottla.sim.network.recorder import Handled, Settled
from ottla.sim.network.stream import SimStream
from ottla.sim.profile import Profile, profile_of
from ottla.sim.restarts import Restarts
from ottla.sim.seeded_random import generator
from ottla.sim.timeline import Timeline
from ottla.sim.trace import Trace
from ottla.wire.messages.fetch import FetchRequest
from ottla.wire.primitives import DecodeError

DEFAULT_STEPS = 1500
_LINE = 300


class Simulation:
    """One seed. `run` it once."""

    def __init__(
        self,
        seed: int,
        steps: int = DEFAULT_STEPS,
        trace: Trace | None = None,
        profile: Profile | None = None,
    ) -> None:
        self.seed = seed
        self.trace = trace or Trace()
        self.profile = profile = profile or profile_of(seed)
        properties = profile.properties
        auto_creates = properties["auto.create.topics.enable"] == "true"
        self.model = ClusterModel(auto_creates=auto_creates)
        self.counts: Counter[str] = Counter()
        self._steps = steps
        self._chance = generator(seed, "simulation")
        self._timeline = Timeline()
        self._machine = machine = Machine(seed, profile)
        self._conditions = Conditions(machine, properties)
        self._restarts = Restarts(
            machine,
            self.model,
            self._conditions,
            self,
            generator(seed, "restarts"),
            power_fails=profile.power_rate > 0,
        )
        self._fault_injection = FaultInjection(
            machine, self._restarts, profile, generator(seed, "fault_injection"), self.note, self.at
        )
        machine.disk.on_operation = self._disk_operation
        self._driver = MachineDriver(machine, self._timeline, generator(seed, "driver"))
        self._uids = 0
        self._overdue_ms = -1.0
        self._clients = self._make_clients()

    # -- what clients ask for ------------------------------------------------------------

    def wall_ms(self) -> int:
        return self._machine.clock.wall_ms()

    def monotonic_ms(self) -> float:
        return self._timeline.now_ms

    def at(self, time_ms: float, action: Callable[[], None]) -> None:
        self._timeline.at(time_ms, action)

    def new_uid(self) -> int:
        self._uids += 1
        return self._uids

    def connect(self, client: ConnectedClient) -> SimStream | None:
        loop = self._machine.loop
        if loop is None:
            return None
        stream = loop.connect(
            LISTENER,
            lambda data: client.deliver(stream, data),
            lambda: client.lose_connection(stream),
        )
        stream.slow = self._chance.random() < self.profile.slow_connections
        return stream

    # -- the run -------------------------------------------------------------------------

    def run(self) -> str:
        """Play it all; the trace's hash. A Violation when the broker failed."""
        try:
            self._restarts.begin()
            for client in self._clients:
                self.at(self.monotonic_ms() + self._chance.randrange(20), client.think)
            for _ in range(self._steps):
                self._step()
            self._restarts.finish()
        except Violation:
            raise
        except Exception as error:
            raise Violation(f"{type(error).__name__}: {error}") from error
        return self.trace.hash

    def _step(self) -> None:
        """Go to the next time at which something happens, and let it happen."""
        try:
            self._fault_injection.draw()
            self._conditions.look()
            self._pass_time()
            self._timeline.run_due()
            if self._driver.wake():
                self._check_waiting()
        except Crash:
            self._restarts.crashed()

    def _pass_time(self) -> None:
        if self._driver.is_ready:
            return
        now_ms = self.monotonic_ms()
        next_ms = self._timeline.next_ms()
        assert next_ms is not None, "clients always plan their next turn"
        deadline_ms = self._driver.next_deadline_ms()
        if deadline_ms is not None:
            self._check_deadline(deadline_ms)
            next_ms = min(next_ms, deadline_ms)
        self._advance_to(max(next_ms, now_ms))
        self._conditions.look()

    def _check_deadline(self, deadline_ms: float) -> None:
        """Check that a timer which is due runs with the next wake-up at the latest."""
        now_ms = self.monotonic_ms()
        if deadline_ms > now_ms:
            self._overdue_ms = -1.0
        elif deadline_ms == self._overdue_ms:
            raise Violation(f"a timer of {deadline_ms} is left over at {now_ms}")
        else:
            self._overdue_ms = deadline_ms

    def pass_time(self, duration_ms: float) -> None:
        self._advance_to(self._timeline.now_ms + duration_ms)

    def _advance_to(self, time_ms: float) -> None:
        self._timeline.advance_to(time_ms)
        self._driver.follow_clock()

    # -- watching the broker -------------------------------------------------------------

    def note(self, text: str) -> None:
        self.trace.note(self.monotonic_ms(), text)

    def watch(self, loop: SimLoop) -> None:
        loop.recorder.on_settled = self._settled
        loop.recorder.on_refused = self._refused
        self._driver.attend(loop)

    def ended(self, end: End) -> None:
        self.counts[f"end: {end.value}"] += 1
        self._driver.forget()
        for client in self._clients:
            if client.connection is not None:
                client.lose_connection(client.connection)

    def take_replies(self, settled: Settled) -> None:
        for handled in (*settled.answered, *settled.woken):
            self._take_reply(handled)

    def _settled(self, settled: Settled) -> None:
        """Judge what was answered: reads and writes in order, then who waited for them."""
        self.take_replies(settled)
        for handled in settled.lost:
            leave_open(self.model, handled.exchange, self._conditions)
        for handled in settled.answered:
            judge(self.model, handled.exchange, self._conditions)
        for handled in settled.pending:
            expect(self.model, handled.exchange, self._conditions)
        for place in self.model.places():
            place.partition.settled(flushes=place.topic.configs.get("flush.messages") == "1")
        self.model.groups.settled()
        if self._conditions.io_errors or self._conditions.is_full:
            self.model.groups.restarted()  # a group is loaded again when it cannot be written
        for handled in settled.woken:
            judge(self.model, handled.exchange, self._conditions)

    def _take_reply(self, handled: Handled) -> None:
        exchange, frame = handled.exchange, handled.reply
        self.note(f"{exchange!r}"[:_LINE])
        if frame:
            self.note(f"  -> {brief(exchange.answer(frame))}"[:_LINE])
            self.trace.digest(frame)
        self.counts[type(exchange.request).__name__] += 1

    def _refused(self, exchange: Exchange, refusal: DecodeError) -> None:
        if exchange.request is not None:
            raise Violation(f"{exchange!r}: refused as malformed: {refusal}")
        self.counts["malformed"] += 1

    def _check_waiting(self) -> None:
        loop = self._machine.loop
        assert loop is not None
        for handled in loop.recorder.open_requests():
            request = handled.exchange.request
            if not isinstance(request, FetchRequest):
                continue
            if self.monotonic_ms() >= handled.exchange.handled_ms + request.max_wait:
                raise Violation(f"{handled.exchange!r}: still waits at {self.monotonic_ms()}")
            missed = missed_data(self.model, handled.exchange)
            if missed is not None:
                raise Violation(f"{handled.exchange!r}: waits although there is {missed}")

    # -- the disk ------------------------------------------------------------------------

    def _disk_operation(self, operation: str, path: str) -> None:
        self.trace.digest(f"{operation} {path}".encode())
        if self._chance.random() < self.profile.interleaving:
            self._machine.background.run_one()

    # -- clients -------------------------------------------------------------------------

    def _make_clients(self) -> list[Client]:
        profile = self.profile
        kinds: tuple[tuple[type[Client], int], ...] = (
            (Administrator, profile.admins),
            (PlainProducer, profile.producers),
            (IdempotentProducer, profile.idempotent_producers),
            (Consumer, profile.consumers),
            (Prober, profile.probers),
            (MalformedClient, profile.noise),
            (ClassicMember, profile.classic_members),
            (ConsumerMember, profile.consumer_members),
        )
        clients = []
        for kind, count in kinds:
            for number in range(count):
                name = f"{kind.__name__}-{number}"
                clients.append(kind(name, self, generator(self.seed, name)))
        return clients
