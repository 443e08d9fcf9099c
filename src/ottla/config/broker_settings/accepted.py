"""Broker settings that are accepted, because many files contain them, but have no effect here.

Their type and range are checked, so that mistakes are found, and they are described like any
other setting. docs/configuration.md lists them as settings without effect.
"""

from __future__ import annotations

from ottla.config.definition import (
    CLUSTER_WIDE,
    MAX_DOUBLE,
    MAX_INT,
    MAX_LONG,
    READ_ONLY,
    AtLeast,
    Between,
    Setting,
    Type,
    UpdateMode,
    Validator,
    Value,
)


class _Accepted:
    """Creates settings that have no effect, all for the same reason."""

    __slots__ = ("internal", "reason")

    def __init__(self, reason: str, *, internal: bool = False) -> None:
        self.reason = reason
        self.internal = internal

    def __call__(
        self,
        name: str,
        kind: Type,
        default: Value,
        validator: Validator | None = None,
        update: UpdateMode = READ_ONLY,
    ) -> Setting:
        return Setting(
            name, kind, default, validator, self.reason, "low", update, False, self.internal
        )


_row = _Accepted("This broker has one thread, so it has no thread pools.")
THREADS = (
    _row("background.threads", "int", 10, AtLeast(1), CLUSTER_WIDE),
    _row("num.io.threads", "int", 8, AtLeast(1), CLUSTER_WIDE),
    _row("num.network.threads", "int", 3, AtLeast(1), CLUSTER_WIDE),
    _row("num.recovery.threads.per.data.dir", "int", 2, AtLeast(1), CLUSTER_WIDE),
    _row("num.replica.alter.log.dirs.threads", "int", None),
    _row("num.replica.fetchers", "int", 1, AtLeast(1), CLUSTER_WIDE),
    _row("group.coordinator.background.threads", "int", 2, AtLeast(1)),
    _row("group.coordinator.threads", "int", 4, AtLeast(1)),
    _row("share.coordinator.threads", "int", 1, AtLeast(1)),
    _row("log.cleaner.threads", "int", 1, AtLeast(0), CLUSTER_WIDE),
)
_row = _Accepted("For log compaction, which is not supported yet.")
CLEANER = (
    _row("log.cleaner.backoff.ms", "long", 15000, AtLeast(0), CLUSTER_WIDE),
    _row("log.cleaner.dedupe.buffer.size", "long", 134217728, None, CLUSTER_WIDE),
    _row("log.cleaner.enable", "boolean", True),
    _row("log.cleaner.io.buffer.load.factor", "double", 0.9, None, CLUSTER_WIDE),
    _row("log.cleaner.io.buffer.size", "int", 524288, AtLeast(0), CLUSTER_WIDE),
    _row("log.cleaner.io.max.bytes.per.second", "double", MAX_DOUBLE, None, CLUSTER_WIDE),
)
_row = _Accepted("For clusters of several brokers, which are not supported yet.")
REPLICATION = (
    _row("auto.leader.rebalance.enable", "boolean", True),
    _row("broker.heartbeat.interval.ms", "int", 2000),
    _row("broker.session.timeout.ms", "int", 9000),
    _row("controlled.shutdown.enable", "boolean", True),
    _row("controller.quorum.append.linger.ms", "int", 25, AtLeast(0)),
    _row("controller.quorum.auto.join.enable", "boolean", False),
    _row("controller.quorum.bootstrap.servers", "list", ()),
    _row("controller.quorum.election.backoff.max.ms", "int", 1000, AtLeast(0)),
    _row("controller.quorum.election.timeout.ms", "int", 1000, AtLeast(0)),
    _row("controller.quorum.fetch.max.bytes", "int", 1048576, AtLeast(1)),
    _row("controller.quorum.fetch.snapshot.max.bytes", "int", 1048576, AtLeast(1)),
    _row("controller.quorum.fetch.timeout.ms", "int", 2000, AtLeast(0)),
    _row("controller.quorum.request.timeout.ms", "int", 2000, AtLeast(0)),
    _row("controller.quorum.retry.backoff.ms", "int", 20, AtLeast(0)),
    _row("controller.socket.timeout.ms", "int", 30000),
    _row("initial.broker.registration.timeout.ms", "int", 60000),
    _row("leader.imbalance.check.interval.seconds", "long", 300, AtLeast(1)),
    _row("log.dir.failure.timeout.ms", "long", 30000, AtLeast(1)),
    _row("replica.fetch.backoff.ms", "int", 1000, AtLeast(0)),
    _row("replica.fetch.max.bytes", "int", 1048576, AtLeast(0)),
    _row("replica.fetch.min.bytes", "int", 1),
    _row("replica.fetch.response.max.bytes", "int", 10485760, AtLeast(0)),
    _row("replica.fetch.wait.max.ms", "int", 500),
    _row("replica.lag.time.max.ms", "long", 30000),
    _row("replica.selector.class", "string", None),
    _row("replica.socket.receive.buffer.bytes", "int", 65536),
    _row("replica.socket.timeout.ms", "int", 30000),
    _row("request.timeout.ms", "int", 30000),
    _row("socket.connection.setup.timeout.max.ms", "long", 30000),
    _row("socket.connection.setup.timeout.ms", "long", 10000),
)
_row = _Accepted("For replication quotas, which are not supported yet.", internal=True)
THROTTLES = (
    _row("follower.replication.throttled.rate", "long", MAX_LONG, AtLeast(0), CLUSTER_WIDE),
    _row("leader.replication.throttled.rate", "long", MAX_LONG, AtLeast(0), CLUSTER_WIDE),
    _row(
        "replica.alter.log.dirs.io.max.bytes.per.second", "long", MAX_LONG, AtLeast(0), CLUSTER_WIDE
    ),
)
_row = _Accepted(
    "The metadata log is in the first log directory, and its one controller needs no signs of life."
)
METADATA = (
    _row("metadata.log.dir", "string", None),
    _row("metadata.max.idle.interval.ms", "int", 500, AtLeast(0)),
)
_row = _Accepted("This broker does not need to tune reads and writes of group data.")
COORDINATOR = (
    _row("group.coordinator.append.linger.ms", "int", -1, AtLeast(-1)),
    _row(
        "group.coordinator.cached.buffer.max.bytes", "int", 1048588, AtLeast(524288), CLUSTER_WIDE
    ),
    _row("offsets.commit.timeout.ms", "int", 5000, AtLeast(1)),
    _row("offsets.load.buffer.size", "int", 5242880, AtLeast(1)),
)
_row = _Accepted("For streams groups, which are not supported yet.")
STREAMS_GROUPS = (
    _row("group.streams.assignment.interval.ms", "int", 1000, AtLeast(0), CLUSTER_WIDE),
    _row("group.streams.heartbeat.interval.ms", "int", 5000, AtLeast(1)),
    _row("group.streams.initial.rebalance.delay.ms", "int", 3000, AtLeast(0)),
    _row("group.streams.max.assignment.interval.ms", "int", 15000, AtLeast(0)),
    _row("group.streams.max.heartbeat.interval.ms", "int", 15000, AtLeast(1)),
    _row("group.streams.max.session.timeout.ms", "int", 60000, AtLeast(1)),
    _row("group.streams.max.size", "int", MAX_INT, AtLeast(1)),
    _row("group.streams.max.standby.replicas", "int", 2, AtLeast(0)),
    _row("group.streams.min.assignment.interval.ms", "int", 0, AtLeast(0)),
    _row("group.streams.min.heartbeat.interval.ms", "int", 5000, AtLeast(1)),
    _row("group.streams.min.session.timeout.ms", "int", 45000, AtLeast(1)),
    _row("group.streams.num.standby.replicas", "int", 0, AtLeast(0)),
    _row("group.streams.session.timeout.ms", "int", 45000, AtLeast(1)),
)
_row = _Accepted("For share groups, which are not supported yet.")
SHARE_GROUPS = (
    _row("group.share.assignment.interval.ms", "int", 1000, AtLeast(0), CLUSTER_WIDE),
    _row("group.share.assignors", "list", ("simple",)),
    _row("group.share.delivery.count.limit", "int", 5, Between(2, 10)),
    _row("group.share.heartbeat.interval.ms", "int", 5000, AtLeast(1)),
    _row("group.share.max.assignment.interval.ms", "int", 15000, AtLeast(0)),
    _row("group.share.max.delivery.count.limit", "int", 10, Between(5, 25)),
    _row("group.share.max.heartbeat.interval.ms", "int", 15000, AtLeast(1)),
    _row("group.share.max.partition.max.record.locks", "int", 4000, Between(2000, 10000)),
    _row("group.share.max.record.lock.duration.ms", "int", 60000, Between(30000, 3600000)),
    _row("group.share.max.session.timeout.ms", "int", 60000, AtLeast(1)),
    _row("group.share.max.share.sessions", "int", 2000, AtLeast(1)),
    _row("group.share.max.size", "int", 200, Between(1, 1000)),
    _row("group.share.min.assignment.interval.ms", "int", 0, AtLeast(0)),
    _row("group.share.min.delivery.count.limit", "int", 2, Between(2, 5)),
    _row("group.share.min.heartbeat.interval.ms", "int", 5000, AtLeast(1)),
    _row("group.share.min.partition.max.record.locks", "int", 100, Between(100, 2000)),
    _row("group.share.min.record.lock.duration.ms", "int", 15000, Between(1000, 30000)),
    _row("group.share.min.session.timeout.ms", "int", 45000, AtLeast(1)),
    _row("group.share.partition.max.record.locks", "int", 2000, Between(100, 10000)),
    _row("group.share.record.lock.duration.ms", "int", 30000, Between(1000, 3600000)),
    _row("group.share.session.timeout.ms", "int", 45000, AtLeast(1)),
    _row("share.coordinator.append.linger.ms", "int", -1, AtLeast(-1)),
    _row(
        "share.coordinator.cached.buffer.max.bytes", "int", 1048588, AtLeast(524288), CLUSTER_WIDE
    ),
    _row("share.coordinator.load.buffer.size", "int", 5242880, AtLeast(1)),
    _row("share.coordinator.snapshot.update.records.per.snapshot", "int", 500, Between(0, 500)),
    _row("share.coordinator.state.topic.compression.codec", "int", 0),
    _row("share.coordinator.state.topic.min.isr", "short", 2, AtLeast(1)),
    _row("share.coordinator.state.topic.num.partitions", "int", 50, AtLeast(1)),
    _row("share.coordinator.state.topic.replication.factor", "short", 3, AtLeast(1)),
    _row("share.coordinator.state.topic.segment.bytes", "int", 104857600, AtLeast(1)),
    _row("share.coordinator.write.timeout.ms", "int", 5000, AtLeast(1)),
    _row("share.fetch.purgatory.purge.interval.requests", "int", 1000),
)
_row = _Accepted("For transactions, which are not supported yet.")
TRANSACTIONS = (
    _row("add.partitions.to.txn.retry.backoff.max.ms", "int", 100, AtLeast(0)),
    _row("add.partitions.to.txn.retry.backoff.ms", "int", 20, AtLeast(1)),
    _row("transaction.abort.timed.out.transaction.cleanup.interval.ms", "int", 10000, AtLeast(1)),
    _row("transaction.max.timeout.ms", "int", 900000, AtLeast(1)),
    _row("transaction.partition.verification.enable", "boolean", True, None, CLUSTER_WIDE),
    _row("transaction.remove.expired.transaction.cleanup.interval.ms", "int", 3600000, AtLeast(1)),
    _row("transaction.state.log.load.buffer.size", "int", 5242880, AtLeast(1)),
    _row("transaction.state.log.min.isr", "int", 2, AtLeast(1)),
    _row("transaction.state.log.num.partitions", "int", 50, AtLeast(1)),
    _row("transaction.state.log.replication.factor", "short", 3, AtLeast(1)),
    _row("transaction.state.log.segment.bytes", "int", 104857600, AtLeast(1)),
    _row("transaction.two.phase.commit.enable", "boolean", False),
    _row("transactional.id.expiration.ms", "int", 604800000, AtLeast(1)),
)
_row = _Accepted(
    "This broker removes a waiting request when it responds to it, so there is nothing to purge."
)
PURGATORIES = (
    _row("delete.records.purgatory.purge.interval.requests", "int", 1),
    _row("fetch.purgatory.purge.interval.requests", "int", 1000),
    _row("producer.purgatory.purge.interval.requests", "int", 1000),
)
_row = _Accepted("For quotas, which are not supported yet.")
QUOTAS = (
    _row("alter.log.dirs.replication.quota.window.num", "int", 11, AtLeast(1)),
    _row("alter.log.dirs.replication.quota.window.size.seconds", "int", 1, AtLeast(1)),
    _row("controller.quota.window.num", "int", 11, AtLeast(1)),
    _row("controller.quota.window.size.seconds", "int", 1, AtLeast(1)),
    _row("max.connection.creation.rate", "int", MAX_INT, AtLeast(0), CLUSTER_WIDE),
    _row("quota.window.num", "int", 11, AtLeast(1)),
    _row("quota.window.size.seconds", "int", 1, AtLeast(1)),
    _row("replication.quota.window.num", "int", 11, AtLeast(1)),
    _row("replication.quota.window.size.seconds", "int", 1, AtLeast(1)),
)
_row = _Accepted("For Kafka's Java metrics.")
METRICS = (
    _row("kafka.metrics.polling.interval.secs", "int", 10, AtLeast(1)),
    _row("kafka.metrics.reporters", "list", ()),
    _row("metric.reporters", "list", (), None, CLUSTER_WIDE),
    _row("metrics.num.samples", "int", 2, AtLeast(1)),
    _row("metrics.recording.level", "string", "INFO"),
    _row("metrics.sample.window.ms", "long", 30000, AtLeast(1)),
    _row("telemetry.max.bytes", "int", 1048576, AtLeast(1)),
)
_row = _Accepted(
    "Limited in another way: requests by queued.max.request.bytes, the backlog by the operating"
    " system."
)
QUEUES = (
    _row("queued.max.requests", "int", 500, AtLeast(1)),
    _row("socket.listen.backlog.size", "int", 50, AtLeast(1)),
)
_row = _Accepted("For authentication, which is not supported yet.")
SECURITY = (
    _row("connection.failed.authentication.delay.ms", "int", 100, AtLeast(0)),
    _row("connections.max.reauth.ms", "long", 0),
    _row("early.start.listeners", "list", None),
)
_row = _Accepted(
    "Kafka 4 removed this setting. Files for older versions contain it.", internal=True
)
REMOVED = (
    _row("broker.id.generation.enable", "boolean", True),
    _row("inter.broker.protocol.version", "string", None),
    _row("log.message.downconversion.enable", "boolean", True),
    _row("log.message.format.version", "string", None),
    _row("reserved.broker.max.id", "int", 1000, AtLeast(0)),
    _row("zookeeper.connect", "string", None),
    _row("zookeeper.connection.timeout.ms", "int", None),
    _row("zookeeper.session.timeout.ms", "int", 18000),
)

ACCEPTED = (
    *THREADS,
    *CLEANER,
    *REPLICATION,
    *THROTTLES,
    *METADATA,
    *COORDINATOR,
    *STREAMS_GROUPS,
    *SHARE_GROUPS,
    *TRANSACTIONS,
    *PURGATORIES,
    *QUEUES,
    *QUOTAS,
    *METRICS,
    *SECURITY,
    *REMOVED,
)

# These are refused: a user who sets one of them relies on its effect.
UNSUPPORTED = (
    "alter.config.policy.class.name",
    "client.quota.callback.class",
    "config.providers",
    "cordoned.log.dirs",
    "create.topic.policy.class.name",
    "follower.fetch.last.tiered.offset.enable",
    "principal.builder.class",
    "security.providers",
)
UNSUPPORTED_PREFIXES = ("delegation.token.", "listener.name.", "remote.log.", "sasl.", "ssl.")
