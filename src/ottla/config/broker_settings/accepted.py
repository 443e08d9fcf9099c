"""Kafka's broker settings that are accepted, because many files contain them, without effect here.

Their type and range are checked, so that mistakes are found, and they are described like any
other setting. docs/configuration.md lists them as settings without effect, and a broker that
starts with other values than the defaults says so. This module is imported only if a file has one
of these names, or a client asks for settings: it is large.
"""

from __future__ import annotations

from ottla.config.broker_settings.accepted_row import Accepted
from ottla.config.broker_settings.accepted_security import LOGINS, POLICIES, TLS, TOKENS
from ottla.config.broker_settings.accepted_tiered import TIERED_STORAGE
from ottla.config.definition import (
    CLUSTER_WIDE,
    MAX_INT,
    AtLeast,
    Between,
    Setting,
)

_row = Accepted("This broker has one thread, so it has no thread pools.")
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
)
_row = Accepted("This broker does not need to tune its requests to other nodes.")
REPLICATION = (
    _row("controller.quorum.append.linger.ms", "int", 25, AtLeast(0)),
    _row("controller.socket.timeout.ms", "int", 30000),
    _row("log.dir.failure.timeout.ms", "long", 30000, AtLeast(1)),
    _row("replica.fetch.backoff.ms", "int", 1000, AtLeast(0)),
    _row("replica.socket.receive.buffer.bytes", "int", 65536),
    _row("replica.socket.timeout.ms", "int", 30000),
    _row("request.timeout.ms", "int", 30000),
    _row("socket.connection.setup.timeout.max.ms", "long", 30000),
    _row("socket.connection.setup.timeout.ms", "long", 10000),
)
_row = Accepted(
    "The metadata log is in the first log directory, and its one controller needs no signs of life."
)
METADATA = (
    _row("metadata.log.dir", "string", None),
    _row("metadata.max.idle.interval.ms", "int", 500, AtLeast(0)),
)
_row = Accepted("This broker does not need to tune reads and writes of group data.")
COORDINATOR = (
    _row("group.coordinator.append.linger.ms", "int", -1, AtLeast(-1)),
    _row(
        "group.coordinator.cached.buffer.max.bytes", "int", 1048588, AtLeast(524288), CLUSTER_WIDE
    ),
    _row("offsets.commit.timeout.ms", "int", 5000, AtLeast(1)),
    _row("offsets.load.buffer.size", "int", 5242880, AtLeast(1)),
)
_row = Accepted("For streams groups, which are not supported yet.")
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
_row = Accepted("For share groups, which are not supported yet.")
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
_row = Accepted("This broker does not need to tune reads of the transaction log.")
TRANSACTION_LOG = (_row("transaction.state.log.load.buffer.size", "int", 5242880, AtLeast(1)),)
_row = Accepted(
    "This broker removes a waiting request when it responds to it, so there is nothing to purge."
)
PURGATORIES = (
    _row("delete.records.purgatory.purge.interval.requests", "int", 1),
    _row("fetch.purgatory.purge.interval.requests", "int", 1000),
    _row("producer.purgatory.purge.interval.requests", "int", 1000),
)
_row = Accepted("For quotas, which are not supported yet.")
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
_row = Accepted("For Kafka's Java metrics.")
METRICS = (
    _row("kafka.metrics.polling.interval.secs", "int", 10, AtLeast(1)),
    _row("kafka.metrics.reporters", "list", ()),
    _row(
        "metric.reporters",
        "list",
        ("org.apache.kafka.common.metrics.JmxReporter",),
        None,
        CLUSTER_WIDE,
    ),
    _row("metrics.num.samples", "int", 2, AtLeast(1)),
    _row("metrics.recording.level", "string", "INFO"),
    _row("metrics.sample.window.ms", "long", 30000, AtLeast(1)),
    _row("telemetry.max.bytes", "int", 1048576, AtLeast(1)),
)
_row = Accepted(
    "Limited in another way: requests by queued.max.request.bytes, the backlog by the operating"
    " system."
)
QUEUES = (
    _row("queued.max.requests", "int", 500, AtLeast(1)),
    _row("socket.listen.backlog.size", "int", 50, AtLeast(1)),
)
_row = Accepted("For authentication, which is not supported yet.")
SECURITY = (
    _row("connection.failed.authentication.delay.ms", "int", 100, AtLeast(0)),
    _row("connections.max.reauth.ms", "long", 0),
    _row("early.start.listeners", "list", None),
)
_row = Accepted("Kafka 4 removed this setting. Files for older versions contain it.", internal=True)
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

_ROWS = (
    *THREADS,
    *REPLICATION,
    *METADATA,
    *COORDINATOR,
    *STREAMS_GROUPS,
    *SHARE_GROUPS,
    *TRANSACTION_LOG,
    *PURGATORIES,
    *QUEUES,
    *QUOTAS,
    *METRICS,
    *SECURITY,
    *LOGINS,
    *TLS,
    *TOKENS,
    *POLICIES,
    *TIERED_STORAGE,
    *REMOVED,
)

ACCEPTED: dict[str, Setting] = {setting.name: setting for setting in _ROWS}
assert len(ACCEPTED) == len(_ROWS), "a setting is declared twice"

PREFIXES = ("rsm.config.", "rlmm.config.")
"""How the settings of Kafka's plug-ins for tiered storage begin. Their names are not known."""
