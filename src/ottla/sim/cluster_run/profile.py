"""What kind of run a seed makes: how many brokers, which clients, what goes wrong how often.

Each seed switches some faults off and turns others up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from ottla.model.ids import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from ottla.sim.cluster import CONTROLLER_PORT, host_of
from ottla.sim.cluster_run.topics import OUTPUT
from ottla.sim.seeded_random import generator

_RATES = (0.0, 0.0, 1.0, 3.0)
_GROUP_SETTINGS = {
    "group.initial.rebalance.delay.ms": "100",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "2000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "500",
}
_TRANSACTION_SETTINGS = {
    "transaction.state.log.num.partitions": "2",
    "transaction.state.log.min.isr": "1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "300",
}
_EXPIRATION_SETTINGS = {
    "transactional.id.expiration.ms": "1000",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "200",
}
_TIER_SETTINGS = {
    "remote.log.storage.system.enable": "true",
    "remote.log.storage.url": "memory:",
    "remote.log.manager.task.interval.ms": "300",
    "log.retention.check.interval.ms": "200",
    "rlmm.config.remote.log.metadata.topic.num.partitions": "1",
}
_DRIFT = 1 / 1024
"""The step of clock rates: binary, so that sums of times stay exact."""


class ClusterProfile(NamedTuple):
    """The choices of one seed. Weights of faults are relative to each other."""

    brokers: int
    """Brokers that are controllers as well, and vote."""
    extra_brokers: int
    """Brokers without a vote, which join later."""
    properties: dict[str, str]
    clock_rates: dict[int, float]
    topics: int
    partitions: int
    min_insync_replicas: int
    producers: int
    consumers: int
    temporary_producers: int
    """Producers of topics that are deleted and created again."""
    admins: int
    classic_members: int
    consumer_members: int
    copiers: int
    """Clients that copy in transactions, each a partition of its own."""
    rivals: int
    """How many of the copied partitions have a second client with the same transactional id."""
    group_copiers: int
    """Members of one group that copy its partitions, each with a transactional id of its own."""
    transaction_version: int
    """The newest transaction version that clients have."""
    transaction_timeout_ms: int
    output_segment_bytes: int
    """The size of segments of what transactions write."""
    cleans: bool
    """Whether logs are compacted: those of coordinators, and what transactions write."""
    is_dynamic: bool
    """Whether voters of the quorum are added and removed."""
    has_eligible_leaders: bool
    """Whether replicas stay eligible to lead that have left too small an ISR (KIP-966).

    New clusters have that. Else it is switched off at the beginning.
    """
    changes_features: bool
    """Whether that is switched on and off all the time, and metadata.version changes."""
    pipelining: int
    fault_pause_ms: tuple[int, ...]
    """How long nothing new goes wrong, one of them."""
    outage_ms: tuple[int, ...]
    """How long a fault lasts, one of them."""
    weights: dict[str, float]
    most_faults: int = -1
    """After how many faults nothing more goes wrong; -1 is no limit."""
    tiers: bool = False
    """Whether old segments of lasting topics, and of what transactions write, go to a store."""
    tier_admins: int = 0
    """Administrators of topics in the remote tier that are deleted and created again."""

    @property
    def has_transactions(self) -> bool:
        """True if there are transactional clients."""
        return bool(self.copiers or self.group_copiers)

    def compacts(self, topic: str) -> bool:
        """Return True if replicas of a topic may lack records that later ones replace."""
        return self.cleans and (
            topic in (OFFSETS_TOPIC, TRANSACTIONS_TOPIC) or topic.startswith(OUTPUT)
        )


def profile_of(seed: int) -> ClusterProfile:
    """Return the profile of a seed."""
    chance = generator(seed, "cluster-profile")
    later_chance = generator(seed, "cluster-profile-transactions")
    tier_chance = generator(seed, "cluster-profile-tier")
    elr_chance = generator(seed, "cluster-profile-eligible-leaders")
    brokers = chance.choice((3, 3, 3, 3, 4, 5))
    extra_brokers = chance.choice((0, 0, 1, 1, 2))
    lose_power = chance.choice(_RATES)
    fail_disks = chance.choice((0.0, 0.0, 0.0, 1.0))
    properties = {
        "offsets.topic.num.partitions": "1",
        "log.cleaner.enable": "false",  # checks compare all batches that were ever committed
        "log.initial.task.delay.ms": str(chance.choice((500, 86_400_000))),
        "replica.lag.time.max.ms": str(chance.choice((500, 2000, 30_000))),
        "replica.fetch.wait.max.ms": str(chance.choice((50, 500))),
        "broker.session.timeout.ms": str(chance.choice((1500, 3000, 9000))),
        "broker.heartbeat.interval.ms": str(chance.choice((200, 1000))),
        "metadata.log.max.record.bytes.between.snapshots": str(chance.choice((2000, 20_971_520))),
        "metadata.max.retention.bytes": str(chance.choice((3000, 104_857_600))),
        "metadata.log.segment.bytes": str(chance.choice((8_388_608, 1_073_741_824))),
    }
    properties |= _GROUP_SETTINGS | _TRANSACTION_SETTINGS
    if lose_power or fail_disks:
        # What is acknowledged must be on disk if several machines may lose power, or are booted
        # because their disks have failed.
        properties["log.flush.interval.messages"] = "1"
    profile = ClusterProfile(
        brokers=brokers,
        extra_brokers=extra_brokers,
        properties=properties,
        clock_rates={
            number: 1 + chance.choice((0, 0, 0, -20, 3, 50)) * _DRIFT
            for number in range(1, brokers + extra_brokers + 1)
        },
        topics=chance.choice((1, 1, 2, 3)),
        partitions=chance.choice((1, 1, 2, 3)),
        min_insync_replicas=chance.choice((1, 1, 2)),
        producers=chance.choice((1, 2, 3)),
        consumers=chance.choice((1, 2)),
        temporary_producers=chance.choice((0, 1)),
        admins=chance.choice((0, 0, 1, 2)),
        classic_members=chance.choice((0, 0, 0, 2, 3)),
        consumer_members=chance.choice((0, 0, 0, 2, 3)),
        pipelining=chance.choice((1, 2, 5)),
        fault_pause_ms=chance.choice(((100, 500), (300, 2000), (1000, 5000))),
        outage_ms=chance.choice(((10, 200), (50, 500, 3000), (1000, 12_000))),
        weights={
            "kill": chance.choice(_RATES),
            "crash": chance.choice(_RATES),
            "power": lose_power,
            "stop": chance.choice(_RATES),
            "pause": chance.choice(_RATES),
            "cut": chance.choice(_RATES),
            "one_way": chance.choice(_RATES),
            "isolate": chance.choice(_RATES),
            "drop": chance.choice(_RATES),
            "wall": chance.choice((0.0, 0.0, 1.0)),
            "full": chance.choice((0.0, 0.0, 0.0, 1.0)),
            "fail_disk": fail_disks,
            "wipe": chance.choice((0.0, 0.5)),
            "target_leader": chance.choice((0.0, 1.0, 3.0)),
        },
        copiers=chance.choice((0, 0, 1, 2)),
        rivals=chance.choice((0, 1, 2)),
        transaction_version=chance.choice((0, 1, 2, 2)),
        transaction_timeout_ms=chance.choice((1500, 3000, 60_000)),
        output_segment_bytes=chance.choice((700, 2000, 1_048_576)),
        cleans=False,
        is_dynamic=False,
        has_eligible_leaders=elr_chance.random() < 0.75,
        changes_features=elr_chance.random() < 0.25,
        group_copiers=later_chance.choice((0, 0, 0, 2)),
    )
    if chance.random() < 0.3:
        profile = with_cleaner(profile)
    if chance.random() < 0.2:
        profile = with_voter_changes(profile)
    if later_chance.random() < 0.3:
        profile = with_expiration(profile)
    if tier_chance.random() < 0.25:
        profile = with_tier(profile, tier_chance.choice(_RATES))
        if tier_chance.random() < 0.5:
            profile = with_tier_admin(profile)
    return profile


def with_expiration(profile: ClusterProfile) -> ClusterProfile:
    """Return a profile in which transactional ids that nobody uses are forgotten soon."""
    return profile._replace(properties={**profile.properties, **_EXPIRATION_SETTINGS})


def with_tier(profile: ClusterProfile, store_faults: float) -> ClusterProfile:
    """Return a profile with topics in the remote tier, and a store that fails now and then."""
    properties = {**profile.properties, **_TIER_SETTINGS, "log.initial.task.delay.ms": "50"}
    weights = {**profile.weights, "store": store_faults}
    return profile._replace(properties=properties, weights=weights, tiers=True)


def with_tier_admin(profile: ClusterProfile) -> ClusterProfile:
    """Return a profile with topics in the remote tier that are deleted and created again."""
    return profile._replace(tier_admins=1, temporary_producers=2)


def with_cleaner(profile: ClusterProfile) -> ClusterProfile:
    """Return a profile with small segments that are compacted all the time."""
    properties = {
        **profile.properties,
        "log.cleaner.enable": "true",
        "log.cleaner.backoff.ms": "200",
        "log.cleaner.min.cleanable.ratio": "0.01",
        "log.cleaner.delete.retention.ms": "3000",
        "log.flush.offset.checkpoint.interval.ms": "500",
    }
    return profile._replace(properties=properties, cleans=True)


def with_voter_changes(profile: ClusterProfile) -> ClusterProfile:
    """Return a profile with more controllers than voters, and with voters that change."""
    brokers = max(profile.brokers, 4)
    servers = ",".join(f"{host_of(each)}:{CONTROLLER_PORT}" for each in range(1, brokers + 1))
    properties = {
        **profile.properties,
        "controller.quorum.voters": "",
        "controller.quorum.bootstrap.servers": servers,
    }
    return profile._replace(properties=properties, brokers=brokers, is_dynamic=True)


def rough_profile(seed: int) -> ClusterProfile:
    """Return the profile of a small cluster whose brokers come and go all the time."""
    profile = profile_of(seed)
    properties = {
        **profile.properties,
        "broker.session.timeout.ms": "1000",
        "broker.heartbeat.interval.ms": "200",
        "replica.lag.time.max.ms": "500",
        "metadata.log.max.record.bytes.between.snapshots": "500",
        "log.cleaner.enable": "false",
    }
    for name in ("controller.quorum.bootstrap.servers", "controller.quorum.voters"):
        properties.pop(name, None)
    for name in (*_EXPIRATION_SETTINGS, *_TIER_SETTINGS):
        properties.pop(name, None)
    return profile._replace(
        cleans=False,
        tiers=False,
        tier_admins=0,
        is_dynamic=False,
        changes_features=False,
        brokers=3,
        extra_brokers=0,
        properties=properties,
        clock_rates={},
        topics=1,
        partitions=1,
        min_insync_replicas=1,
        producers=2,
        consumers=1,
        temporary_producers=0,
        admins=0,
        classic_members=0,
        consumer_members=0,
        copiers=0,
        group_copiers=0,
        pipelining=5,
        fault_pause_ms=(100, 300, 600),
        outage_ms=(50, 500, 1500),
        weights={"kill": 3.0, "isolate": 2.0, "pause": 2.0, "one_way": 1.0, "target_leader": 2.0},
    )


def busy_profile(seed: int) -> ClusterProfile:
    """Return a rough profile with administrators: topics, replicas and brokers come and go."""
    return rough_profile(seed)._replace(
        extra_brokers=1,
        admins=2,
        temporary_producers=2,
        outage_ms=(50, 500),
        fault_pause_ms=(300, 600),
    )


def grouped_profile(seed: int) -> ClusterProfile:
    """Return a rough profile with groups of both protocols."""
    return rough_profile(seed)._replace(
        partitions=3, classic_members=3, consumer_members=3, fault_pause_ms=(500, 1000)
    )


def transactional_profile(seed: int) -> ClusterProfile:
    """Return a rough profile with clients that copy partitions in transactions."""
    return rough_profile(seed)._replace(
        partitions=2,
        producers=2,
        copiers=2,
        rivals=1,
        fault_pause_ms=(500, 1000),
        outage_ms=(50, 500),
    )


def copying_group_profile(seed: int) -> ClusterProfile:
    """Return a rough profile with a group whose members copy in transactions (KIP-447)."""
    return transactional_profile(seed)._replace(
        copiers=0,
        rivals=0,
        group_copiers=3,
        transaction_timeout_ms=60_000,
        fault_pause_ms=(1500, 3000),
    )


def expiring_profile(seed: int) -> ClusterProfile:
    """Return a profile with transactional ids that expire."""
    return with_expiration(transactional_profile(seed))


def cleaned_profile(seed: int) -> ClusterProfile:
    """Return a profile with transactions and with logs that are compacted."""
    return with_cleaner(transactional_profile(seed))


def tiered_profile(seed: int) -> ClusterProfile:
    """Return a profile with transactions and a remote tier.

    Of two seeds, one compacts as well. Of four seeds, two delete tiered topics.
    """
    profile = transactional_profile(seed)._replace(
        output_segment_bytes=700, outage_ms=(50, 500, 3000)
    )
    profile = with_tier(with_cleaner(profile) if seed % 2 else profile, 3.0)
    if seed % 4 > 1:
        profile = with_tier_admin(profile)._replace(fault_pause_ms=(700, 1500))
    return profile


def voters_profile(seed: int) -> ClusterProfile:
    """Return a rough profile with voters that are added and removed."""
    return with_voter_changes(rough_profile(seed))


def eligible_profile(seed: int) -> ClusterProfile:
    """Return a rough profile in which ISRs become empty, with eligible leader replicas.

    Most brokers have no vote: so the quorum goes on while all replicas of a partition are away.
    In every fourth seed levels of features change all the time.
    """
    return rough_profile(seed)._replace(
        has_eligible_leaders=True,
        changes_features=seed % 4 == 0,
        min_insync_replicas=2,
        extra_brokers=3,
        partitions=2,
        outage_ms=(50, 500, 3000),
        weights={"stop": 3.0, "kill": 2.0, "isolate": 1.0, "pause": 1.0, "target_leader": 3.0},
    )


def dark_profile(seed: int) -> ClusterProfile:
    """Return a rough profile in which machines lose their power."""
    profile = rough_profile(seed)
    return profile._replace(
        properties={**profile.properties, "log.flush.interval.messages": "1"},
        weights={"power": 3.0, "kill": 1.0, "target_leader": 2.0},
    )


MIXED: Final = "mixed"
"""The kind of run in which each seed has something of everything."""

ALL: Final = "all"
"""Stands for all kinds in turn."""

PROFILES: Final[Mapping[str, Callable[[int], ClusterProfile]]] = {
    MIXED: profile_of,
    "rough": rough_profile,
    "busy": busy_profile,
    "groups": grouped_profile,
    "transactions": transactional_profile,
    "copying-group": copying_group_profile,
    "expiration": expiring_profile,
    "compaction": cleaned_profile,
    "tier": tiered_profile,
    "voters": voters_profile,
    "eligible-leaders": eligible_profile,
    "power": dark_profile,
}
"""The kinds of runs by the names that `ottla sim --profile` takes."""


def kind_of(seed: int, wanted: str) -> str:
    """Return the kind of run of a seed. Raise ValueError if there is no such kind."""
    if wanted == ALL:
        return list(PROFILES)[seed % len(PROFILES)]
    if wanted not in PROFILES:
        raise ValueError(f"there is no profile {wanted}: choose {ALL} or {', '.join(PROFILES)}")
    return wanted
