"""A run of a whole cluster: brokers, clients, faults and checks, all from one seed.

Things go wrong for some seconds of virtual time. Then everything is healed, and the cluster must
be well within a bounded time: brokers are unfenced, ISRs are complete, everything that clients
sent is acknowledged, readers have read it, and all replicas and images are equal.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random as Generator

from ottla.log.log import Log
from ottla.metadata.image import MetadataImage, PartitionImage, TopicImage
from ottla.model.ids import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from ottla.raft.voters import VoterSet
from ottla.sim.clients.connected_client import ConnectedClient
from ottla.sim.cluster import SimCluster
from ottla.sim.cluster_run.admin import ClusterAdmin, FeatureSetter, SegmentSetter
from ottla.sim.cluster_run.checks import Checks
from ottla.sim.cluster_run.clients import (
    ClusterClient,
    ClusterConsumer,
    ClusterProducer,
    TemporaryProducer,
    TopicCreator,
    new_topic,
)
from ottla.sim.cluster_run.compacted_history import CompactedHistory
from ottla.sim.cluster_run.copier import Copier
from ottla.sim.cluster_run.faults import ClusterFaults
from ottla.sim.cluster_run.group_checks import take_answer
from ottla.sim.cluster_run.group_copier import GroupCopier
from ottla.sim.cluster_run.group_history import GroupHistory
from ottla.sim.cluster_run.group_members import ClassicMember, ConsumerMember, GroupMember
from ottla.sim.cluster_run.history import History, LogHistory, PartitionKey, batches_of
from ottla.sim.cluster_run.profile import ClusterProfile, profile_of
from ottla.sim.cluster_run.tier_admin import TierAdmin
from ottla.sim.cluster_run.tier_checks import TierChecks
from ottla.sim.cluster_run.topics import INTERNAL, OUTPUT, is_loose, key_of
from ottla.sim.cluster_run.transaction_history import TransactionHistory
from ottla.sim.cluster_run.transaction_readers import TransactionReader
from ottla.sim.cluster_run.voters import VoterAdmin
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
_CLEANED_SEGMENT_BYTES = 1000
_OUTPUT = f"{OUTPUT}0"
_OUTPUT_PARTITIONS = 2
_TIERED_SEGMENT_BYTES = 700


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
            lambda topic: CompactedHistory if is_compacted(topic, profile) else LogHistory
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
        self._clients: list[ClusterClient] = []
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
        self._keys = [
            (f"topic-{topic}", index)
            for topic in range(profile.topics)
            for index in range(profile.partitions)
        ]
        self._make_clients()

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
        if key not in self._keys:
            self._keys.append(key)
            self._add_producer(key)
            self.at(self.monotonic_ms(), self._producers[-1].think)

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

    def _make_clients(self) -> None:
        profile, seed = self.profile, self.seed
        self._streams: dict[int, list[tuple[ClusterClient, SimStream]]] = {}
        names = sorted({name for name, _ in self._keys})
        topics = [
            new_topic(
                name,
                profile.partitions,
                profile.min_insync_replicas,
                segment_bytes=_TIERED_SEGMENT_BYTES if profile.tiers else None,
                is_tiered=profile.tiers,
            )
            for name in names
        ]
        if profile.has_transactions:
            topics.append(
                new_topic(
                    _OUTPUT,
                    _OUTPUT_PARTITIONS,
                    profile.min_insync_replicas,
                    segment_bytes=profile.output_segment_bytes,
                    is_compacted=is_compacted(_OUTPUT, profile),
                    is_tiered=profile.tiers,
                )
            )
        self._clients.append(TopicCreator("creator", self, generator(seed, "creator"), topics))
        if profile.cleans:
            self._clients.append(
                SegmentSetter("setter", self, generator(seed, "setter"), _CLEANED_SEGMENT_BYTES)
            )
        if profile.has_eligible_leaders:
            self._clients.append(FeatureSetter("features", self, generator(seed, "features")))
        chance = generator(seed, "cluster-clients")
        self._producers: list[ClusterProducer] = []
        for number in range(max(profile.producers, 1)):
            self._add_producer(
                self._keys[number % len(self._keys)], chance.randint(1, profile.pipelining)
            )
        self._temporary = [
            TemporaryProducer(name, self, generator(seed, name))
            for name in (f"temporary-{number}" for number in range(profile.temporary_producers))
        ]
        self._admins = [
            ClusterAdmin(name, self, generator(seed, name))
            for name in (f"admin-{number}" for number in range(profile.admins))
        ]
        self._admins += [
            TierAdmin(name, self, generator(seed, name))
            for name in (f"tier-admin-{number}" for number in range(profile.tier_admins))
        ]
        self._voter_admins = [
            VoterAdmin(name, self, generator(seed, name), profile.brokers)
            for name in (("voter-admin",) if profile.is_dynamic else ())
        ]
        self._consumers: list[ClusterConsumer] = []
        for number in range(profile.consumers):
            name = f"consumer-{number}"
            key = self._keys[number % len(self._keys)]
            self._consumers.append(ClusterConsumer(name, self, generator(seed, name), key))
        self._members: list[GroupMember] = [
            ClassicMember(name, self, generator(seed, name))
            for name in (f"classic-{number}" for number in range(profile.classic_members))
        ]
        self._members += [
            ConsumerMember(name, self, generator(seed, name))
            for name in (f"member-{number}" for number in range(profile.consumer_members))
        ]
        self._make_copiers()
        self._clients += [*self._producers, *self._temporary, *self._consumers]
        self._clients += [*self._admins, *self._voter_admins, *self._members]

    def _make_copiers(self) -> None:
        """Make the clients of transactions, and readers of what they write."""
        profile, chance = self.profile, generator(self.seed, "transactions")
        self._copiers: list[Copier] = []
        self._rivals: list[Copier] = []
        for number, source in enumerate(self._keys[: profile.copiers]):
            self._copiers.append(self._new_copier(f"copier-{number}", source, chance))
            if number < profile.rivals:
                self._rivals.append(self._new_copier(f"rival-{number}", source, chance))
        self._group_copiers = [
            self._new_group_copier(f"group-copier-{number}", chance)
            for number in range(profile.group_copiers)
        ]
        for index in range(_OUTPUT_PARTITIONS if profile.has_transactions else 0):
            for level in (0, 1):
                name = f"reader-{index}-{level}"
                reader = TransactionReader(name, self, generator(self.seed, name), (_OUTPUT, index))
                reader.isolation_level = level
                reader.allows_gaps = is_compacted(_OUTPUT, profile)
                self._consumers.append(reader)

    def _new_group_copier(self, name: str, chance: Generator) -> GroupCopier:
        return GroupCopier(
            name,
            self,
            generator(self.seed, name),
            sources=self._keys,
            target=_OUTPUT,
            version=self._client_version(chance),
            timeout_ms=self.profile.transaction_timeout_ms,
        )

    def _client_version(self, chance: Generator) -> int:
        """Return the transaction version of a client: mostly the newest one."""
        newest = self.profile.transaction_version
        return chance.choice((newest, newest, chance.randint(0, newest)))

    def _new_copier(self, name: str, source: PartitionKey, chance: Generator) -> Copier:
        return Copier(
            name,
            self,
            generator(self.seed, name),
            source=source,
            target=_OUTPUT,
            version=self._client_version(chance),
            timeout_ms=self.profile.transaction_timeout_ms,
        )

    def _add_producer(self, key: PartitionKey, pipelining: int = 1) -> None:
        name = f"producer-{len(self._producers)}"
        self._producers.append(
            ClusterProducer(name, self, generator(self.seed, name), key, pipelining)
        )

    # -- the run -------------------------------------------------------------------------

    def run(self) -> str:
        """Play it all; return the trace's hash. Raise Violation if the cluster failed."""
        try:
            for client in self._clients:
                self.at(self.monotonic_ms(), client.think)
            for copier in (*self._copiers, *self._rivals, *self._group_copiers):
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
        for producer in self._producers + self._temporary:
            producer.slow_down()
        for admin in self._admins:
            admin.is_finished = True
        for voter_admin in self._voter_admins:
            voter_admin.is_finished = True
        for member in self._members:
            member.is_steady = True
        for copier in (*self._copiers, *self._group_copiers):
            copier.calm_down()
        for rival in self._rivals:
            rival.is_retired = True
        self._wait_for(lambda: not any(admin.in_flight for admin in self._admins), lambda: "admin")
        acked = {producer.name: producer.acked for producer in self._producers}
        commits = {member.name: member.commits for member in self._members}
        self._wait_for(
            lambda: not (self._unwell(acked) or self._unsteady(commits)),
            lambda: self._unwell(acked) or self._unsteady(commits),
        )
        for producer in self._producers + self._temporary:
            producer.is_finishing = True
        for consumer in self._consumers:
            consumer.read_once_more()
        self._wait_for(lambda: not self._unfinished(), self._unfinished)
        self._check_acknowledged()
        self._check_replicas()
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

    def _unwell(self, acked: dict[str, int]) -> str:
        """Return what is not well yet, empty if everything is."""
        numbers = self._numbers
        for number in numbers:
            if not self._cluster.is_running(number):
                return f"broker {number} does not run"
            brokers = self._cluster.node(number).image.brokers
            active = [each for each in numbers if each in brokers and brokers[each].active]
            if len(active) < len(numbers):
                return f"broker {number} knows only {active} as active"
        topics = self._cluster.node(1).image.topics
        for name in {name for name, _ in self._keys}:
            if name not in topics:
                return f"{name} is not there"
        for name, topic in topics.items():
            for image in topic.partitions:
                if image.leader < 0 or len(image.isr) < len(image.replicas):
                    return f"{name} has the partition {image}"
                if image.adding_replicas or image.removing_replicas:
                    return f"{name} is being reassigned: {image}"
        for producer in self._producers:
            if producer.acked <= acked.get(producer.name, 0):
                return f"{producer.name} has sent nothing"
        return ""

    def _unsteady(self, commits: dict[str, int]) -> str:
        """Return what is not well with the groups, empty if everything is."""
        for kind in (ClassicMember, ConsumerMember):
            members = [member for member in self._members if isinstance(member, kind)]
            if not members:
                continue
            owned = [partition for member in members for partition in member.owned]
            if sorted(owned) != sorted(members[0].all_partitions()):
                return f"{kind.GROUP_ID} has assigned {sorted(owned)}"
            for member in members:
                if member.owned and member.commits <= commits[member.name]:
                    return f"{member.name} has committed nothing"
        return ""

    def _unfinished(self) -> str:
        """Return what is not as it must be in the end, empty if everything is."""
        for producer in self._producers + self._temporary:
            if not producer.is_done:
                return f"{producer.name} waits for acknowledgements"
        for number in self._numbers:
            if not self._cluster.is_running(number):
                return f"broker {number} does not run"
        images = [self._cluster.node(number).image for number in self._numbers]
        if any(_comparable(image) != _comparable(images[0]) for image in images):
            return "images differ"
        problem = self._uncopied() or self._unequal(images[0]) or self._unstable()
        problem = problem or self._unread()
        if not problem and self._tier is not None:
            problem = self._tier.unfinished(images[0])
        return problem

    def _uncopied(self) -> str:
        """Return what transactions have still to do."""
        for copier in self._copiers:
            position = self.transactions.input(copier.input).position
            if position != self.history.log(copier.source).end:
                return f"{copier.name} has copied up to {position}"
        for key in self._keys if self._group_copiers else ():
            position = self.transactions.input((GroupCopier.group_id, *key)).position
            if position != self.history.log(key).end:
                return f"the group has copied {key} up to {position}"
        return self.transactions.unfinished()

    def _unstable(self) -> str:
        """Return which partition has an open transaction, as its leader says."""
        for number in self._numbers:
            for partition in self._cluster.node(number).topics:
                log = partition.log
                if log is not None and log.last_stable_offset < log.high_watermark:
                    return (
                        f"a transaction hangs: the last stable offset of {partition.name} on"
                        f" {number} is {log.last_stable_offset}, below {log.high_watermark}"
                    )
        return ""

    def _unequal(self, image: MetadataImage) -> str:
        """Return which partition's replicas do not end alike."""
        for name, topic in image.topics.items():
            if name.startswith(INTERNAL):
                continue
            for partition in topic.partitions:
                logs = self._replicas(topic, partition)
                ends = {log and (log.high_watermark, log.written_end) for log in logs}
                expected = self.history.log(key_of(name, topic.topic_id, partition.partition_id))
                if not is_loose(name) and ends != {(expected.end, expected.end)}:
                    return f"{name}-{partition.partition_id} ends at {ends}, not {expected.end}"
                if len(ends) > 1:
                    return f"{name}-{partition.partition_id} ends at {ends}"
        return ""

    def _replicas(self, topic: TopicImage, partition: PartitionImage) -> list[Log | None]:
        return [
            self._cluster.node(number)
            .topics.partition_by_id(topic.topic_id, partition.partition_id)
            .log
            for number in partition.replicas
        ]

    def _unread(self) -> str:
        for consumer in self._consumers:
            if consumer.position != self.history.log(consumer.key).end:
                return f"{consumer.name} has read up to {consumer.position}"
        return ""

    def _check_replicas(self) -> None:
        """Compare the replicas of topics whose records may be lost: they are equal now."""
        for name, topic in self.image.topics.items():
            for partition in topic.partitions if is_loose(name) else ():
                contents = [
                    [data for _, data in batches_of(log, 0, log.written_end)]
                    for log in self._replicas(topic, partition)
                    if log is not None
                ]
                if any(content != contents[0] for content in contents):
                    raise Violation(f"replicas of {name}-{partition.partition_id} differ")

        for name, topic in self.image.topics.items():
            for partition in topic.partitions if is_compacted(name, self.profile) else ():
                history = self.history.log((name, partition.partition_id))
                assert isinstance(history, CompactedHistory)
                for number, log in zip(
                    partition.replicas, self._replicas(topic, partition), strict=True
                ):
                    assert log is not None
                    remote = [] if self._tier is None else self._tier.batches_of(number, log)
                    history.check_whole(f"broker {number}", log, remote)
        if self._tier is not None:
            self._tier.check(self.image)

    def _check_acknowledged(self) -> None:
        for key, acked in self.history.acked.items():
            offsets = self.history.log(key).offsets
            for uid, offset in acked.items():
                if offsets.get(uid) != offset:
                    raise Violation(f"batch {uid} was acknowledged at {offset} of {key}")

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
            if self._members:
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


def is_compacted(topic: str, profile: ClusterProfile) -> bool:
    """Return True if replicas of a topic may lack records that later ones replace."""
    return profile.cleans and (
        topic in (OFFSETS_TOPIC, TRANSACTIONS_TOPIC) or topic.startswith(OUTPUT)
    )


def _comparable(image: MetadataImage) -> tuple[object, ...]:
    """Return what must be equal on all nodes."""
    return image.topics, image.configs, image.brokers, image.next_producer_id
