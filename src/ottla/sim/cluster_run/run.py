"""A run of a whole cluster: brokers, clients, faults and checks, all from one seed.

Things go wrong for some seconds of virtual time. Then everything is healed, and the cluster must
be well within a bounded time: brokers are unfenced, ISRs are complete, everything that clients
sent is acknowledged, readers have read it, and all replicas and images are equal.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from ottla.metadata.image import MetadataImage
from ottla.model.ids import OFFSETS_TOPIC
from ottla.raft.voters import VoterSet
from ottla.sim.clients.connected_client import ConnectedClient
from ottla.sim.cluster import SimCluster
from ottla.sim.cluster_run.checks import Checks
from ottla.sim.cluster_run.client_set import ClientSet
from ottla.sim.cluster_run.clients import ClusterClient
from ottla.sim.cluster_run.compacted_history import CompactedHistory
from ottla.sim.cluster_run.faults import ClusterFaults
from ottla.sim.cluster_run.final_checks import FinalChecks
from ottla.sim.cluster_run.group_checks import take_answer
from ottla.sim.cluster_run.group_history import GroupHistory
from ottla.sim.cluster_run.history import History, LogHistory, PartitionKey
from ottla.sim.cluster_run.profile import ClusterProfile, profile_of
from ottla.sim.cluster_run.tier_checks import TierChecks
from ottla.sim.cluster_run.transaction_history import TransactionHistory
from ottla.sim.disk.faults import Crash
from ottla.sim.machine import LISTENER, Machine
from ottla.sim.network.exchange import Exchange, Violation, brief
from ottla.sim.network.recorder import Handled, Settled
from ottla.sim.network.stream import SimStream
from ottla.sim.object_store import SharedObjects
from ottla.sim.seeded_random import generator
from ottla.sim.trace import Trace
from ottla.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

DEFAULT_SECONDS = 20
HEALED_WITHIN_MS = 60_000
TIERED_WITHIN_MS = 240_000
"""A store that was away is tried again after up to a minute."""
_LINE = 240
_CLOCK_SKEW_MS = 10_000.0


class ClusterRun:
    """One seed. `run` it once."""

    def __init__(
        self,
        seed: int,
        seconds: float = DEFAULT_SECONDS,
        trace: Trace | None = None,
        profile: ClusterProfile | None = None,
    ) -> None:
        self.seed = seed
        self.trace = trace or Trace()
        self.counts: Counter[str] = Counter()
        self.profile = profile = profile or profile_of(seed)
        self.history = History(
            lambda topic: CompactedHistory if profile.compacts(topic) else LogHistory
        )
        self.groups = GroupHistory()
        self.transactions = TransactionHistory(self.note)
        self.transactions.is_strict = not profile.weights.get("fail_disk")
        self.clock_skew_ms = 0.0
        if profile.clock_rates or profile.weights.get("wall"):
            self.clock_skew_ms = _CLOCK_SKEW_MS
        expiration_ms = profile.properties.get("transactional.id.expiration.ms")
        if expiration_ms is not None and not self.clock_skew_ms:
            self.transactions.expiration_ms = int(expiration_ms)
        self._inits: dict[int, tuple[int, int]] = {}
        self.broker_count = profile.brokers + profile.extra_brokers
        self._numbers = range(1, self.broker_count + 1)
        self._seconds = seconds
        self._uids = 0
        self._streams: dict[int, list[tuple[ClusterClient, SimStream]]] = {}
        store = SharedObjects(generator(seed, "store")) if profile.tiers else None
        self._patience_ms = TIERED_WITHIN_MS if profile.tiers else HEALED_WITHIN_MS
        self._cluster = cluster = SimCluster(
            profile.brokers,
            seed,
            profile.properties,
            are_one_cluster=True,
            clock_rates=profile.clock_rates,
            extra=profile.extra_brokers,
            on_start=self._watch,
            remote_tier=store,
        )
        self._tier = None if store is None else TierChecks(cluster, store, self.history)
        self._checks = Checks(
            cluster, profile.brokers, self.history, self.note, is_dynamic=profile.is_dynamic
        )
        self._faults = ClusterFaults(
            cluster,
            profile,
            generator(seed, "cluster-faults"),
            self._note_fault,
            self._leader,
            self._is_dispensable,
        )
        cluster.after_wake = self._look
        if profile.has_transactions:
            self.history.on_added = self.transactions.added
        cluster.on_end = self._ended
        self.clients = ClientSet(self)
        self._end = FinalChecks(
            cluster, profile, self.clients, self.history, self.transactions, self._tier
        )

    # -- what clients ask for ------------------------------------------------------------

    @property
    def image(self) -> MetadataImage:
        """Return the newest metadata that any node has."""
        return self._checks.image

    def is_running(self, number: int) -> bool:
        return self._cluster.is_running(number)

    def shows_commits(self, number: int, key: PartitionKey) -> bool:
        """Return False if its disk has failed, or if its replica is gone since the commit.

        The checkers look at a broker when its wake-up ends.
        """
        node = self._cluster.machine(number).node
        topic = node.topics.named(key[0]) if node is not None else None
        partition = topic.partitions.get(key[1]) if topic is not None else None
        is_gone = node is not None and (partition is None or partition.removed)
        return not is_gone and not self._faults.has_failed(number)

    def quorum(self) -> tuple[int, VoterSet] | None:
        """Return the leader of the quorum and the voters that it knows, None without one."""
        leaders = []
        for number in self._numbers:
            node = self._cluster.machine(number).node
            member = None if node is None else node.controller.member
            if member is not None and member.quorum.is_leader:
                leaders.append((member.quorum.election.epoch, number, member.quorum.voters))
        if not leaders:
            return None
        _, number, voters = max(leaders, key=lambda each: each[0])
        return number, voters

    def directory_of(self, number: int) -> bytes | None:
        """Return the directory id of a controller, None if it does not run."""
        node = self._cluster.machine(number).node
        return None if node is None else node.hosted_logs.identity.directory_ids[0]

    def grown(self, key: PartitionKey) -> None:
        """Let a producer write to a partition that was added."""
        if key not in self.clients.keys:
            self.clients.keys.append(key)
            self.at(self.monotonic_ms(), self.clients.add_producer(key).think)

    def is_copied(self, topic_id: bytes) -> bool:
        """Return True if the object store has anything of a topic."""
        return self._tier is not None and self._tier.is_copied(topic_id)

    def tier_turned_off(self, topic_id: bytes) -> None:
        """Take note that somebody asks for the deletion of a topic's remote part."""
        assert self._tier is not None
        self._tier.turned_off.add(topic_id)

    def wall_ms(self) -> int:
        return self._cluster.machine(1).clock.wall_ms()

    def monotonic_ms(self) -> float:
        return self._cluster.timeline.now_ms

    def at(self, time_ms: float, action: Callable[[], None]) -> None:
        self._cluster.timeline.at(time_ms, action)

    def new_uid(self) -> int:
        self._uids += 1
        return self._uids

    def connect(self, client: ConnectedClient) -> SimStream | None:
        assert isinstance(client, ClusterClient)
        loop = self._cluster.machine(client.broker).loop
        if loop is None:
            return None
        stream = loop.connect(
            LISTENER,
            lambda data: client.deliver(stream, data),
            lambda: client.lose_connection(stream),
        )
        self._streams.setdefault(client.broker, []).append((client, stream))
        return stream

    # -- the run -------------------------------------------------------------------------

    def run(self) -> str:
        """Play it all; return the trace's hash. Raise Violation if the cluster failed."""
        try:
            for client in self.clients:
                self.at(self.monotonic_ms(), client.think)
            for copier in self.clients.all_copiers:
                self.at(self.monotonic_ms(), copier.start)
            self._faults.begin()
            self._cluster.run_for(self._seconds * 1000)
            self._heal()
        except Violation:
            raise
        except Exception as error:
            raise Violation(f"{type(error).__name__}: {error}") from error
        return self.trace.hash

    def _heal(self) -> None:
        self.note("everything is healed")
        self._faults.heal_all()
        clients, end = self.clients, self._end
        clients.calm_down()
        self._wait_for(
            lambda: all(admin.is_done for admin in clients.admins),
            lambda: "an administrator is not done",
        )
        acked = {producer.name: producer.acked for producer in clients.producers}
        commits = {member.name: member.commits for member in clients.members}
        self._wait_for(
            lambda: not (end.unwell(acked) or end.unsteady(commits)),
            lambda: end.unwell(acked) or end.unsteady(commits),
        )
        clients.finish()
        self._wait_for(lambda: not end.unfinished(), end.unfinished)
        end.check_acknowledged()
        end.check_replicas(self.image)
        if self._tier is not None:
            self.counts += self._tier.counts()
        self.counts["write cycles"] += self.transactions.cycles.check()
        for key, log in sorted(self.history.logs.items()):
            self.trace.digest(f"{key} {log.end} {list(log.batches.values())}".encode())

    def _wait_for(self, condition: Callable[[], bool], problem: Callable[[], str]) -> None:
        until_ms = self.monotonic_ms() + self._patience_ms
        while not condition():
            if self.monotonic_ms() > until_ms:
                raise Violation(
                    f"{self._patience_ms / 1000} s after everything is healed: {problem()}"
                )
            self._cluster.run_for(100)

    # -- watching ------------------------------------------------------------------------

    def note(self, text: str) -> None:
        self.trace.note(self.monotonic_ms(), text)

    def _look(self, number: int) -> None:
        """Check what a wake-up of a broker has changed."""
        self._checks.look(number)
        if self._tier is not None:
            self._tier.look(number)
        self.transactions.settle()

    def _note_fault(self, text: str) -> None:
        self.counts["faults"] += 1
        self.note(f"* {text}")

    def _leader(self) -> int:
        """Return the broker that leads the first partition, or the quorum."""
        for number in self._numbers:
            node = self._cluster.machine(number).node
            if node is not None and any(each.leader is not None for each in node.topics):
                return number
        return 1

    def _is_dispensable(self, number: int) -> bool:
        """Return True if a broker is in no ISR, and no leader may be elected from it."""
        return not any(
            number in (*partition.isr, *partition.eligible_leader_replicas)
            for topic in self.image.topics.values()
            for partition in topic.partitions
        )

    def _watch(self, number: int, machine: Machine) -> None:
        node, loop = machine.node, machine.loop
        assert node is not None
        assert loop is not None

        def refused(reason: str) -> None:
            if "running" in reason:
                raise Violation(f"broker {number} was refused: {reason}")
            self.note(f"broker {number} was refused: {reason}")
            loop.call(lambda: self._kill(number))

        node.when_ready(lambda: None, refused)
        loop.recorder.on_settled = lambda settled: self._settled(number, settled)

    def _kill(self, number: int) -> None:
        """End a process in the middle of its wake-up."""
        self._cluster.machine(number).kill()
        raise Crash

    def _settled(self, number: int, settled: Settled) -> None:
        for handled in (*settled.answered, *settled.woken):
            self._take_reply(number, handled)

    def _take_reply(self, number: int, handled: Handled) -> None:
        exchange, frame = handled.exchange, handled.reply
        self.counts[type(exchange.request).__name__] += 1
        self.note(f"{exchange!r} to {number}"[:_LINE])
        if frame:
            self.note(f"  -> {brief(exchange.answer(frame))}"[:_LINE])
            self.trace.digest(frame)
            self._take_init(exchange)
            if self.clients.members:
                is_current = self._is_coordinator(number)
                take_answer(self.groups, exchange, self.monotonic_ms(), is_current=is_current)

    def _take_init(self, exchange: Exchange) -> None:
        """Take note of who has taken over a transactional id."""
        request, reply = exchange.request, exchange.reply
        if isinstance(request, InitProducerIdRequest) and request.transactional_id:
            assert isinstance(reply, InitProducerIdResponse)
            given = None if reply.error_code else (reply.producer_id, reply.producer_epoch)
            number = self.transactions.init_decided(request.transactional_id, given)
            known = self.transactions.id(request.transactional_id)
            self._inits[id(exchange)] = number, known.expirations

    def init_number(self, exchange: Exchange) -> tuple[int, int]:
        """Return which decision about its transactional id an answer was.

        The second number is how often the id had expired before.
        """
        return self._inits[id(exchange)]

    def _is_coordinator(self, number: int) -> bool:
        """Return True if a broker leads the offsets by the newest metadata, and knows it."""
        node = self._cluster.machine(number).node
        newest, own = (
            image and image.topics.get(OFFSETS_TOPIC) for image in (self.image, node and node.image)
        )
        return bool(newest and own and newest.partitions == own.partitions)

    def _ended(self, number: int) -> None:
        self.counts["ends"] += 1
        self._checks.ended(number)
        self._faults.ended(number)
        for client, stream in self._streams.pop(number, ()):
            client.lose_connection(stream)
