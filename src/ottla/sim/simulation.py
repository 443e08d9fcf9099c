"""A run: clients, network, faults and crashes around the very node that serves production.

Everything that happens is an event at a virtual moment, picked by generators derived from
the seed; so a seed is a run, and its trace has one hash.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from heapq import heappop, heappush

from ottla.model.errors import ApiError
from ottla.sim.audit import Audit, End
from ottla.sim.chance import generator
from ottla.sim.channel import Handled, SimChannel
from ottla.sim.clients.administering import Administrator
from ottla.sim.clients.client import Client
from ottla.sim.clients.consuming import Consumer
from ottla.sim.clients.probing import Babbler, Prober
from ottla.sim.clients.producing import IdempotentProducer, PlainProducer
from ottla.sim.cluster_model import ClusterModel
from ottla.sim.edge import SimEdge
from ottla.sim.exchange import Exchange, Violation, brief, make_exchange
from ottla.sim.faults import UNLIMITED, Crash
from ottla.sim.judge import judge, leave_open, partitions_undone
from ottla.sim.judge_fetch import waits_in_vain
from ottla.sim.machine import LISTENER, Machine
from ottla.sim.moment import Moment
from ottla.sim.profile import profile_of
from ottla.sim.trace import Trace
from ottla.wire.message import Message
from ottla.wire.messages.fetch import FetchRequest
from ottla.wire.primitives import DecodeError

DEFAULT_STEPS = 1500


class Simulation:
    """One seed. `run` it once."""

    def __init__(self, seed: int, steps: int = DEFAULT_STEPS, trace: Trace | None = None) -> None:
        self.seed = seed
        self.trace = trace or Trace()
        self.profile = profile_of(seed)
        auto_creates = self.profile.properties["auto.create.topics.enable"] == "true"
        self.model = ClusterModel(auto_creates=auto_creates)
        self.counts: Counter[str] = Counter()
        self._steps = steps
        self._chance = generator(seed, "simulation")
        self._machine = Machine(seed, self.profile)
        self._machine.disk.on_operation = self._disk_operation
        self._machine.on_submit = self._background_work
        self._machine.on_result = self._background_result
        expiration_ms = int(self.profile.properties["producer.id.expiration.ms"])
        self._moment = Moment(self._machine, expiration_ms)
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._event_number = 0
        self._uids = 0
        self._writable: list[SimChannel] = []
        self._has_results = False
        self._end = End.KILL
        self._worst_end = End.CLEAN
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
            self._start()
            for client in self._clients:
                self.at(self.monotonic_ms() + self._chance.randrange(20), client.think)
            for _ in range(self._steps):
                self._step()
            self._finish()
        except Violation:
            raise
        except Exception as error:
            raise Violation(f"{type(error).__name__}: {error}") from error
        return self.trace.hash

    def _step(self) -> None:
        """Go to the next moment at which something happens, and let it happen."""
        try:
            self._break_something()
            self._pass_time()
            while self._events and self._events[0][0] <= self.monotonic_ms():
                heappop(self._events)[2]()
            self._wake()
        except Crash:
            self._restart()

    def _pass_time(self) -> None:
        edge, node = self._edge(), self._machine.node
        assert node is not None
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
        edge, node = self._edge(), self._machine.node
        assert node is not None
        deadline_ms = node.next_deadline_ms()
        is_due = deadline_ms is not None and deadline_ms <= self.monotonic_ms()
        is_gone = any(channel.eof for channel in edge.channels)
        if is_due or is_gone or self._writable or self._has_results or edge.readable():
            writable, self._writable = self._writable, []
            self._has_results = False
            edge.wake(writable)
            self._check_parked(edge)

    def _edge(self) -> SimEdge:
        assert self._machine.edge is not None
        return self._machine.edge

    def _finish(self) -> None:
        """Heal everything, stop cleanly, pull the plug for good measure, and read it all."""
        self._machine.faults.heal()
        had_errors = self._moment.io_errors
        self._stop(End.POWER if had_errors else End.CLEAN)
        if not had_errors:
            self._machine.lose_power()
        self._start()

    # -- what answers say ----------------------------------------------------------------

    def _settled(self, new: list[Handled], woken: list[Handled]) -> None:
        """Judge what was answered: reads and writes in order, then who waited for them."""
        self._moment.undone.clear()
        for handled in [each for each in new if each.channel.closed]:
            new.remove(handled)
            leave_open(self.model, handled.exchange)
        for handled in (*new, *woken):
            self._take_reply(handled)
            self._moment.undone |= partitions_undone(handled.exchange)
        for handled in new:
            judge(self.model, handled.exchange, self._moment)
        for place in self.model.places():
            place.partition.settled(flushes=place.topic.configs.get("flush.messages") == "1")
        for handled in woken:
            judge(self.model, handled.exchange, self._moment)

    def _take_replies(self, new: list[Handled], woken: list[Handled]) -> None:
        for handled in (*new, *woken):
            self._take_reply(handled)

    def _take_reply(self, handled: Handled) -> None:
        exchange = handled.exchange
        frame = handled.channel.parts_from(handled.start, handled.end)
        if bool(frame) != exchange.wants_reply:
            raise Violation(f"{exchange!r}: answered with {frame!r}")
        self.trace.note(self.monotonic_ms(), f"{exchange!r}"[:300])
        if frame:
            self.trace.note(self.monotonic_ms(), f"  -> {brief(exchange.answer(frame))}"[:300])
            self.trace.digest(frame)
        self.counts[type(exchange.request).__name__] += 1

    def _refused(self, exchange: Exchange | None, refusal: DecodeError) -> None:
        if exchange is not None and exchange.request is not None:
            raise Violation(f"{exchange!r}: refused as malformed: {refusal}")
        self.counts["malformed"] += 1

    def _check_parked(self, edge: SimEdge) -> None:
        for channel in edge.channels:
            parked = channel.parked
            if parked is None:
                continue
            request = parked.exchange.request
            assert isinstance(request, FetchRequest)
            if self.monotonic_ms() >= parked.handled_ms + request.max_wait:
                raise Violation(f"{parked.exchange!r}: still waits at {self.monotonic_ms()}")
            missed = waits_in_vain(self.model, parked.exchange)
            if missed is not None:
                raise Violation(f"{parked.exchange!r}: waits although there is {missed}")

    # -- the disk and the background -----------------------------------------------------

    def _disk_operation(self, operation: str, path: str) -> None:
        self.trace.digest(f"{operation} {path}".encode())
        if self._chance.random() < self.profile.interleaving:
            self._machine.background.run_one()

    def _background_work(self) -> None:
        background = self._machine.background
        delay_ms = self._chance.choice((0, 1, 10, 200))
        self.at(self.monotonic_ms() + delay_ms, lambda: self._run_background(background))

    def _run_background(self, background: object) -> None:
        if self._machine.background is background:
            self._machine.background.run_one()

    def _background_result(self) -> None:
        background = self._machine.background
        delay_ms = self._chance.choice((0, 0, 3, 50))
        self.at(self.monotonic_ms() + delay_ms, lambda: self._deliver(background))

    def _deliver(self, background: object) -> None:
        if self._machine.background is background:
            self._has_results = True

    def _blocked(self, channel: SimChannel) -> None:
        delay_ms = self._chance.choice((0, 5, 100))
        self.at(self.monotonic_ms() + delay_ms, lambda: self._writable.append(channel))

    # -- faults --------------------------------------------------------------------------

    def _break_something(self) -> None:
        dice, profile = self._chance.random() * 1000, self.profile
        actions: tuple[tuple[float, Callable[[], None]], ...] = (
            (profile.kill_rate, lambda: self._crash_soon(End.KILL)),
            (profile.power_rate, lambda: self._crash_soon(End.POWER)),
            (profile.clean_rate, self._restart_cleanly),
            (profile.full_rate, self._fill_disk),
            (profile.error_rate, self._break_disk),
            (profile.wall_step_rate, self._step_wall),
        )
        for rate, action in actions:
            dice -= rate
            if dice < 0:
                action()
                return

    def _crash_soon(self, end: End) -> None:
        """At once, or in the middle of one of the next operations of the disk."""
        self._end = end
        if self._chance.random() < 0.2:
            self._machine.kill()
            raise Crash
        self._machine.faults.operations_until_crash = self._chance.randrange(40)

    def _fill_disk(self) -> None:
        volume = self._chance.choice(self._machine.faults.volumes)
        volume.free_bytes = self._chance.choice((0, 100, 3000))
        self._note(f"{volume.path} has {volume.free_bytes} bytes left")

        def make_room() -> None:
            volume.free_bytes = UNLIMITED
            self._note(f"{volume.path} has room again")

        self.at(self.monotonic_ms() + self._chance.choice((20, 500, 5000)), make_room)

    def _break_disk(self) -> None:
        volume = self._chance.choice(self._machine.faults.volumes)
        volume.eio_probability = self._chance.choice((1.0, 0.3, 0.05))
        self._moment.look()
        self._note(f"{volume.path} fails with {volume.eio_probability}")

    def _step_wall(self) -> None:
        delta_ms = self._chance.choice((-3000, -20, 100, 5000))
        self._machine.clock.step_wall(delta_ms)
        self._note(f"the wall clock steps by {delta_ms}")

    def _note(self, text: str) -> None:
        self.trace.note(self.monotonic_ms(), text)

    # -- ends and beginnings -------------------------------------------------------------

    def _restart_cleanly(self) -> None:
        trouble = self._moment.io_errors or self._moment.is_full
        self._stop(End.KILL if trouble else End.CLEAN)
        self._begin_again()

    def _stop(self, end: End) -> None:
        self._end = end
        self._machine.stop()
        self._ended()

    def _restart(self) -> None:
        """The process has crashed: what it had begun is open, what it had answered holds."""
        if self._end is End.CLEAN:
            self._end = End.KILL
        self._ended()
        self._begin_again()

    def _ended(self) -> None:
        """Take down what the end of the process left, and tell the clients."""
        edge = self._machine.edge
        if edge is not None:
            for handled in edge.handled:
                leave_open(self.model, handled.exchange)
            for channel in edge.channels:
                channel.closed = True
        if self._end is End.POWER:
            self._lose_power()
        else:
            self._machine.kill()
        self._worst_end = max(self._worst_end, self._end, key=list(End).index)
        self._note(f"the broker has ended: {self._end.value}")
        self.counts[f"end: {self._end.value}"] += 1
        self._machine.node = self._machine.edge = None
        self._writable.clear()
        self._has_results = False
        for client in self._clients:
            if client.channel is not None:
                client.lose_connection(client.channel)

    def _lose_power(self) -> None:
        points = self._machine.lose_power()
        for place in self.model.places():
            partition = place.partition
            for name, point in points.items():
                if str(name) == partition.name:
                    partition.durable_end = max(partition.durable_end, point)
            partition.lose_power()

    def _begin_again(self) -> None:
        """Start the broker, which may crash or fail while it starts, until it runs."""
        faults = self._machine.faults
        while True:
            now_ms = self.monotonic_ms() + self._chance.choice((1, 100, 3000))
            self._machine.clock.advance_to(now_ms)
            if self._chance.random() < 0.7:
                faults.heal()
            faults.operations_until_crash = -1
            if self._chance.random() < 0.2:
                faults.operations_until_crash = self._chance.randrange(60)
            try:
                self._start()
            except Crash:
                loses_power = self.profile.power_rate > 0 and self._chance.random() < 0.5
                self._end = End.POWER if loses_power else End.KILL
                self._ended()
            except (OSError, ApiError) as error:
                if not self._moment.io_errors and not self._moment.is_full:
                    raise
                self._note(f"the broker did not start: {error}")
                self._end = End.KILL
                self._ended()
                faults.heal()
            else:
                return

    def _start(self) -> None:
        self._moment.begin_life()
        self._machine.start()
        edge = self._edge()
        edge.on_settled = self._settled
        edge.on_blocked = self._blocked
        edge.on_refused = self._refused
        self._note("the broker has started")
        self._audit()

    def _audit(self) -> None:
        """Read everything; nothing crashes meanwhile, though a broken disk stays broken."""
        faults = self._machine.faults
        armed, faults.operations_until_crash = faults.operations_until_crash, -1
        edge = self._edge()
        channel = edge.connect(LISTENER, lambda data: None, lambda: None)

        def ask(request: Message, version: int) -> Message:
            exchange = make_exchange("audit", 1, request, version)
            channel.requests.append(exchange)
            channel.inbox += exchange.frame
            edge.wake([])
            if exchange.reply is None:
                raise Violation(f"{exchange!r}: not answered at once")
            return exchange.reply

        edge.on_settled = self._take_replies
        Audit(self.model, ask, self._moment, self._worst_end).run()
        edge.on_settled = self._settled
        edge.close(channel)
        faults.operations_until_crash = armed
        self._end, self._worst_end = End.KILL, End.CLEAN

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
