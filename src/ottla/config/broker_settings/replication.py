"""Broker settings of replication: what followers fetch, and when they count as in sync."""

from __future__ import annotations

from ottla.config.component import Component, setting
from ottla.config.definition import CLUSTER_WIDE, MAX_LONG, AtLeast, OneOf

RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
LEADER_ONLY = "org.apache.kafka.common.replica.LeaderSelector"


class ReplicationConfig(Component):
    """How followers fetch, and how far behind an in-sync replica may be."""

    replica_lag_time_max_ms: int = setting(
        "replica.lag.time.max.ms",
        "long",
        default=30000,
        validator=AtLeast(1),
        doc="A follower that has not caught up with the leader for this long leaves the ISR.",
        importance="high",
    )
    replica_fetch_wait_max_ms: int = setting(
        "replica.fetch.wait.max.ms",
        "int",
        default=500,
        validator=AtLeast(0),
        doc="How long the leader waits for new records before it answers a follower.",
        importance="high",
    )
    replica_fetch_min_bytes: int = setting(
        "replica.fetch.min.bytes",
        "int",
        default=1,
        validator=AtLeast(0),
        doc="How many bytes the leader waits for before it answers a follower.",
        importance="high",
    )
    replica_fetch_max_bytes: int = setting(
        "replica.fetch.max.bytes",
        "int",
        default=1048576,
        validator=AtLeast(0),
        doc="How many bytes of one partition a follower fetches at a time.",
    )
    replica_fetch_response_max_bytes: int = setting(
        "replica.fetch.response.max.bytes",
        "int",
        default=10485760,
        validator=AtLeast(0),
        doc="How many bytes a follower fetches at a time.",
    )
    leader_replication_throttled_rate: int = setting(
        "leader.replication.throttled.rate",
        "long",
        default=MAX_LONG,
        validator=AtLeast(0),
        doc=(
            "How many bytes a second this broker sends to followers that are not in sync, for the"
            " replicas in the topic setting leader.replication.throttled.replicas."
        ),
        update=CLUSTER_WIDE,
        internal=True,
    )
    follower_replication_throttled_rate: int = setting(
        "follower.replication.throttled.rate",
        "long",
        default=MAX_LONG,
        validator=AtLeast(0),
        doc=(
            "How many bytes a second this broker fetches for replicas that are not in sync, for"
            " those in the topic setting follower.replication.throttled.replicas."
        ),
        update=CLUSTER_WIDE,
        internal=True,
    )
    replica_alter_log_dirs_io_max_bytes_per_second: int = setting(
        "replica.alter.log.dirs.io.max.bytes.per.second",
        "long",
        default=MAX_LONG,
        validator=AtLeast(0),
        doc="How many bytes a second this broker copies from one log directory to another.",
        update=CLUSTER_WIDE,
        internal=True,
    )
    replica_selector_class: str | None = setting(
        "replica.selector.class",
        "string",
        default=None,
        validator=OneOf((RACK_AWARE, LEADER_ONLY)),
        doc=(
            "From which replica consumers read. With RackAwareReplicaSelector the leader sends"
            " consumers with a client.rack to a replica in sync in that rack. Default: the leader."
        ),
    )
    auto_leader_rebalance_enable: bool = setting(
        "auto.leader.rebalance.enable",
        "boolean",
        default=True,
        doc=(
            "The active controller lets the preferred replicas (the first ones) lead their"
            " partitions again, if they are in sync."
        ),
        importance="high",
    )
    leader_imbalance_per_broker_percentage: int = setting(
        "leader.imbalance.per.broker.percentage",
        "int",
        default=10,
        validator=AtLeast(0),
        doc=(
            "A broker gets its partitions back if others lead more of them than this: percent of"
            " those that it is the preferred leader of."
        ),
        importance="high",
    )
    leader_imbalance_check_interval_seconds: int = setting(
        "leader.imbalance.check.interval.seconds",
        "long",
        default=300,
        validator=AtLeast(1),
        doc="How often the active controller looks for partitions with another leader.",
        importance="high",
    )
