"""A run: clients, network, faults and crashes around the very node that serves production.

Everything that happens is an event at a virtual moment, picked by generators derived from
the seed; so a seed is a run, and its trace has one hash.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from heapq import heappop, heappush

from ottla.broker.node import Node
from ottla.sim.background import DeferredBackground
from ottla.sim.chance import generator
from ottla.sim.channel import Handled, SimChannel
from ottla.sim.clients.administering import Administrator
from ottla.sim.clients.client import Client
from ottla.sim.clients.consuming import Consumer
from ottla.sim.clients.probing import Babbler, Prober
from ottla.sim.clients.producing import IdempotentProducer, PlainProducer
from ottla.sim.cluster_model import ClusterModel
from ottla.sim.edge import SimEdge
from ottla.sim.exchange import Exchange, Violation, brief
from ottla.sim.faults import Crash
from ottla.sim.judge import judge, leave_open
from ottla.sim.judge_fetch import waits_in_vain
from ottla.sim.lives import Lives
from ottla.sim.machine import LISTENER, Machine
from ottla.sim.mishaps import Mishaps
from ottla.sim.moment import Moment
from ottla.sim.partition_model import End
from ottla.sim.profile import profile_of
from ottla.sim.trace import Trace
from ottla.wire.messages.fetch import FetchRequest
from ottla.wire.primitives import DecodeError

DEFAULT_STEPS = 1500
_LINE = 300


class Simulation:
    """One seed. `run` it once."""

    def __init__(self, seed: int, steps: int = DEFAULT_STEPS, trace: Trace | None = None) -> None:
        self.seed = seed
        self.trace = trace or Trace()
        self.profile = profile = profile_of(seed)
        properties = profile.properties
        auto_creates = properties["auto.create.topics.enable"] == "true"
        self.model = ClusterModel(auto_creates=auto_creates)
        self.counts: Counter[str] = Counter()
        self._steps = steps
        self._chance = generator(seed, "simulation")
        self._machine = machine = Machine(seed, profile)
        self._moment = Moment(machine, int(properties["producer.id.expiration.ms"]))
        self._lives = Lives(
            machine,
            self.model,
            self._moment,
            self,
            generator(seed, "lives"),
            power_fails=profile.power_rate > 0,
        )
        self._mishaps = Mishaps(
            machine, self._lives, profile, generator(seed, "mishaps"), self.note, self.at
        )
        machine.disk.on_operation = self._disk_operation
        machine.on_submit = self._background_work
        machine.on_result = self._background_result
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._event_number = 0
        self._uids = 0
        self._writable: list[SimChannel] = []
        self._has_results = False
        self._clients = self._make_clients()

    # -- the stage clients play on -------------------------------------------------------

    def wall_ms(self) -> int:
        return self._machine.clock.wall_ms()

    def monotonic_ms(self) -> float:
        return self._machine.clock.monotonic_ms()

    def at(self, time_ms: float, action: Callable[[], None]) -> None:
        self._event_number += 1
        heappush(self._events, (time_ms, self._event_number, action))

    def new_uid(self) -> int:
        self._uids += 1
        return self._uids

    def connect(self, client: Client) -> SimChannel | None:
        edge = self._machine.edge
        if edge is None:
            return None
        channel = edge.connect(
            LISTENER,
            lambda data: client.deliver(channel, data),
            lambda: client.lose_connection(channel),
        )
        channel.slow = self._chance.random() < self.profile.slow_connections
        return channel

    # -- the run -------------------------------------------------------------------------

    def run(self) -> str:
        """Play it all; the trace's hash. A Violation when the broker failed."""
        try:
            self._lives.begin()
            for client in self._clients:
                self.at(self.monotonic_ms() + self._chance.randrange(20), client.think)
            for _ in range(self._steps):
                self._step()
            self._lives.finish()
        except Violation:
            raise
        except Exception as error:
            raise Violation(f"{type(error).__name__}: {error}") from error
        return self.trace.hash

    def _step(self) -> None:
        """Go to the next moment at which something happens, and let it happen."""
        try:
            self._mishaps.draw()
            self._moment.look()
            self._pass_time()
            while self._events and self._events[0][0] <= self.monotonic_ms():
                heappop(self._events)[2]()
            self._wake()
        except Crash:
            self._lives.crashed()

    def _pass_time(self) -> None:
        edge, node = self._running()
        now_ms = self.monotonic_ms()
        if edge.readable() or self._has_results:
            return
        next_ms = self._events[0][0]
        deadline_ms = node.next_deadline_ms()
        if deadline_ms is not None:
            if deadline_ms <= now_ms:
                raise Violation(f"a timer of {deadline_ms} is left over at {now_ms}")
            next_ms = min(next_ms, deadline_ms)
        self._machine.clock.advance_to(max(next_ms, now_ms))
        self._moment.look()

    def _wake(self) -> None:
        edge, node = self._running()
        deadline_ms = node.next_deadline_ms()
        is_due = deadline_ms is not None and deadline_ms <= self.monotonic_ms()
        is_gone = any(channel.eof for channel in edge.channels)
        if is_due or is_gone or self._writable or self._has_results or edge.readable():
            writable, self._writable = self._writable, []
            self._has_results = False
            edge.wake(writable)
            self._check_parked(edge, node)

    def _running(self) -> tuple[SimEdge, Node]:
        edge, node = self._machine.edge, self._machine.node
        assert edge is not None
        assert node is not None
        return edge, node

    # -- watching the broker -------------------------------------------------------------

    def note(self, text: str) -> None:
        self.trace.note(self.monotonic_ms(), text)

    def watch(self, edge: SimEdge) -> None:
        edge.on_settled = self._settled
        edge.on_blocked = self._blocked
        edge.on_refused = self._refused

    def ended(self, end: End) -> None:
        self.counts[f"end: {end.value}"] += 1
        self._writable.clear()
        self._has_results = False
        for client in self._clients:
            if client.channel is not None:
                client.lose_connection(client.channel)

    def take_replies(self, new: list[Handled], woken: list[Handled]) -> None:
        for handled in (*new, *woken):
            self._take_reply(handled)

    def _settled(self, new: list[Handled], woken: list[Handled]) -> None:
        """Judge what was answered: reads and writes in order, then who waited for them."""
        for handled in [each for each in new if each.channel.closed]:
            new.remove(handled)
            leave_open(self.model, handled.exchange, self._moment)
        for handled in (*new, *woken):
            self._take_reply(handled)
        for handled in new:
            judge(self.model, handled.exchange, self._moment)
        for place in self.model.places():
            place.partition.settled(flushes=place.topic.configs.get("flush.messages") == "1")
        for handled in woken:
            judge(self.model, handled.exchange, self._moment)

    def _take_reply(self, handled: Handled) -> None:
        exchange = handled.exchange
        frame = handled.frame
        if bool(frame) != exchange.wants_reply:
            raise Violation(f"{exchange!r}: answered with {frame!r}")
        self.note(f"{exchange!r}"[:_LINE])
        if frame:
            self.note(f"  -> {brief(exchange.answer(frame))}"[:_LINE])
            self.trace.digest(frame)
        self.counts[type(exchange.request).__name__] += 1

    def _refused(self, exchange: Exchange | None, refusal: DecodeError) -> None:
        if exchange is not None and exchange.request is not None:
            raise Violation(f"{exchange!r}: refused as malformed: {refusal}")
        self.counts["malformed"] += 1

    def _check_parked(self, edge: SimEdge, node: Node) -> None:
        for channel in edge.channels:
            parked = channel.parked
            if parked is None:
                continue
            request = parked.exchange.request
            if not isinstance(request, FetchRequest):
                if not node.controller.has_uncommitted:
                    raise Violation(f"{parked.exchange!r}: waits for nothing")
                continue
            if self.monotonic_ms() >= parked.handled_ms + request.max_wait:
                raise Violation(f"{parked.exchange!r}: still waits at {self.monotonic_ms()}")
            missed = waits_in_vain(self.model, parked.exchange)
            if missed is not None:
                raise Violation(f"{parked.exchange!r}: waits although there is {missed}")

    # -- the disk, the background, slow connections --------------------------------------

    def _disk_operation(self, operation: str, path: str) -> None:
        self.trace.digest(f"{operation} {path}".encode())
        if self._chance.random() < self.profile.interleaving:
            self._machine.background.run_one()

    def _background_work(self) -> None:
        background = self._machine.background
        delay_ms = self._chance.choice((0, 1, 10, 200))
        self.at(self.monotonic_ms() + delay_ms, lambda: self._run_background(background))

    def _run_background(self, background: DeferredBackground) -> None:
        if self._machine.background is background:
            background.run_one()

    def _background_result(self) -> None:
        background = self._machine.background
        delay_ms = self._chance.choice((0, 0, 3, 50))
        self.at(self.monotonic_ms() + delay_ms, lambda: self._deliver(background))

    def _deliver(self, background: DeferredBackground) -> None:
        if self._machine.background is background:
            self._has_results = True

    def _blocked(self, channel: SimChannel) -> None:
        delay_ms = self._chance.choice((0, 5, 100))
        self.at(self.monotonic_ms() + delay_ms, lambda: self._writable.append(channel))

    # -- clients -------------------------------------------------------------------------

    def _make_clients(self) -> list[Client]:
        profile = self.profile
        kinds: tuple[tuple[type[Client], int], ...] = (
            (Administrator, profile.admins),
            (PlainProducer, profile.producers),
            (IdempotentProducer, profile.idempotent_producers),
            (Consumer, profile.consumers),
            (Prober, profile.probers),
            (Babbler, profile.noise),
        )
        clients = []
        for kind, count in kinds:
            for number in range(count):
                name = f"{kind.__name__}-{number}"
                clients.append(kind(name, self, generator(self.seed, name)))
        return clients
