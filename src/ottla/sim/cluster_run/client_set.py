"""All clients of a run: who they are, and how they become calm when everything is healed."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random as Generator
from typing import TYPE_CHECKING, Final

from ottla.sim.cluster_run.admin import ClusterAdmin, SegmentSetter
from ottla.sim.cluster_run.clients import (
    ClusterClient,
    ClusterConsumer,
    ClusterProducer,
    TemporaryProducer,
    TopicCreator,
    new_topic,
)
from ottla.sim.cluster_run.copier import Copier
from ottla.sim.cluster_run.feature_admin import FeatureAdmin
from ottla.sim.cluster_run.group_copier import GroupCopier
from ottla.sim.cluster_run.group_members import ClassicMember, ConsumerMember, GroupMember
from ottla.sim.cluster_run.history import PartitionKey
from ottla.sim.cluster_run.tier_admin import TierAdmin
from ottla.sim.cluster_run.topics import OUTPUT
from ottla.sim.cluster_run.transaction_readers import TransactionReader
from ottla.sim.cluster_run.voters import VoterAdmin
from ottla.sim.seeded_random import generator

if TYPE_CHECKING:
    from ottla.sim.cluster_run.run import ClusterRun

_CLEANED_SEGMENT_BYTES: Final = 1000
_TIERED_SEGMENT_BYTES: Final = 700
_OUTPUT: Final = f"{OUTPUT}0"
_OUTPUT_PARTITIONS: Final = 2


class ClientSet:
    """The clients that a profile asks for."""

    def __init__(self, run: ClusterRun) -> None:
        profile, seed = run.profile, run.seed
        self._run = run
        self.keys = [
            (f"topic-{topic}", index)
            for topic in range(profile.topics)
            for index in range(profile.partitions)
        ]
        """The partitions of lasting topics that producers write to."""
        names = sorted({name for name, _ in self.keys})
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
                    is_compacted=profile.compacts(_OUTPUT),
                    is_tiered=profile.tiers,
                )
            )
        self.others: list[ClusterClient] = [
            TopicCreator("creator", run, generator(seed, "creator"), topics)
        ]
        """Who creates the topics and sets what they need."""
        if profile.cleans:
            self.others.append(
                SegmentSetter("setter", run, generator(seed, "setter"), _CLEANED_SEGMENT_BYTES)
            )
        chance = generator(seed, "cluster-clients")
        self.producers: list[ClusterProducer] = []
        for number in range(max(profile.producers, 1)):
            self.add_producer(
                self.keys[number % len(self.keys)], chance.randint(1, profile.pipelining)
            )
        self.temporary = [
            TemporaryProducer(name, run, generator(seed, name))
            for name in (f"temporary-{number}" for number in range(profile.temporary_producers))
        ]
        self.admins = [
            ClusterAdmin(name, run, generator(seed, name))
            for name in (f"admin-{number}" for number in range(profile.admins))
        ]
        self.admins += [
            TierAdmin(name, run, generator(seed, name))
            for name in (f"tier-admin-{number}" for number in range(profile.tier_admins))
        ]
        if profile.changes_features or not profile.has_eligible_leaders:
            once = None if profile.changes_features else 0
            self.admins.append(FeatureAdmin("features", run, generator(seed, "features"), once))
        self.voter_admins = [
            VoterAdmin(name, run, generator(seed, name), profile.brokers)
            for name in (("voter-admin",) if profile.is_dynamic else ())
        ]
        self.consumers: list[ClusterConsumer] = []
        for number in range(profile.consumers):
            name = f"consumer-{number}"
            key = self.keys[number % len(self.keys)]
            self.consumers.append(ClusterConsumer(name, run, generator(seed, name), key))
        self.members: list[GroupMember] = [
            ClassicMember(name, run, generator(seed, name))
            for name in (f"classic-{number}" for number in range(profile.classic_members))
        ]
        self.members += [
            ConsumerMember(name, run, generator(seed, name))
            for name in (f"member-{number}" for number in range(profile.consumer_members))
        ]
        self._make_copiers()

    def __iter__(self) -> Iterator[ClusterClient]:
        """Iterate over all clients that take turns; copiers have their own pace."""
        yield from self.others
        yield from (*self.producers, *self.temporary, *self.consumers)
        yield from (*self.admins, *self.voter_admins, *self.members)

    @property
    def all_copiers(self) -> list[Copier]:
        """All clients of transactions."""
        return [*self.copiers, *self.rivals, *self.group_copiers]

    @property
    def all_producers(self) -> list[ClusterProducer]:
        """Producers of lasting topics and of others."""
        return [*self.producers, *self.temporary]

    def calm_down(self) -> None:
        """Change nothing any more, and send less, so that everything can get well."""
        for producer in self.all_producers:
            producer.slow_down()
        for admin in self.admins:
            admin.is_finished = True
        for voter_admin in self.voter_admins:
            voter_admin.is_finished = True
        for member in self.members:
            member.is_steady = True
        for copier in (*self.copiers, *self.group_copiers):
            copier.calm_down()
        for rival in self.rivals:
            rival.is_retired = True

    def finish(self) -> None:
        """Send nothing new, and read everything once more."""
        for producer in self.all_producers:
            producer.is_finishing = True
        for consumer in self.consumers:
            consumer.read_once_more()

    def _make_copiers(self) -> None:
        """Make the clients of transactions, and readers of what they write."""
        run, profile = self._run, self._run.profile
        chance = generator(run.seed, "transactions")
        self.copiers: list[Copier] = []
        self.rivals: list[Copier] = []
        for number, source in enumerate(self.keys[: profile.copiers]):
            self.copiers.append(self._new_copier(f"copier-{number}", source, chance))
            if number < profile.rivals:
                self.rivals.append(self._new_copier(f"rival-{number}", source, chance))
        self.group_copiers = [
            self._new_group_copier(f"group-copier-{number}", chance)
            for number in range(profile.group_copiers)
        ]
        for index in range(_OUTPUT_PARTITIONS if profile.has_transactions else 0):
            for level in (0, 1):
                name = f"reader-{index}-{level}"
                reader = TransactionReader(name, run, generator(run.seed, name), (_OUTPUT, index))
                reader.isolation_level = level
                reader.allows_gaps = profile.compacts(_OUTPUT)
                self.consumers.append(reader)

    def _new_group_copier(self, name: str, chance: Generator) -> GroupCopier:
        return GroupCopier(
            name,
            self._run,
            generator(self._run.seed, name),
            sources=self.keys,
            target=_OUTPUT,
            version=self._client_version(chance),
            timeout_ms=self._run.profile.transaction_timeout_ms,
        )

    def _client_version(self, chance: Generator) -> int:
        """Return the transaction version of a client: mostly the newest one."""
        newest = self._run.profile.transaction_version
        return chance.choice((newest, newest, chance.randint(0, newest)))

    def _new_copier(self, name: str, source: PartitionKey, chance: Generator) -> Copier:
        return Copier(
            name,
            self._run,
            generator(self._run.seed, name),
            source=source,
            target=_OUTPUT,
            version=self._client_version(chance),
            timeout_ms=self._run.profile.transaction_timeout_ms,
        )

    def add_producer(self, key: PartitionKey, pipelining: int = 1) -> ClusterProducer:
        """Add a producer of a partition, and return it."""
        name = f"producer-{len(self.producers)}"
        producer = ClusterProducer(
            name, self._run, generator(self._run.seed, name), key, pipelining
        )
        self.producers.append(producer)
        return producer
