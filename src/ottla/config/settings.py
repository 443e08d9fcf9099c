"""Broker settings that have an effect, except the defaults of topic settings."""

from __future__ import annotations

from ottla.config.definition import (
    CLUSTER_WIDE,
    MAX_INT,
    MAX_LONG,
    AtLeast,
    OneOf,
    Setting,
)
from ottla.config.listeners import DEFAULT_PROTOCOL_MAP, SECURITY_PROTOCOLS

IDENTITY = (
    Setting(
        "node.id",
        "int",
        None,
        AtLeast(0),
        "The id of this node in the cluster. If it is not set, broker.id is used, else 1.",
        "high",
    ),
    Setting(
        "broker.id", "int", -1, AtLeast(-1), "The old name of node.id. -1 means not set.", "high"
    ),
    Setting(
        "cluster.id",
        "string",
        None,
        None,
        "The id of the cluster. Empty data directories get this id; others must have it. If it"
        " is not set, empty directories get a new id. In Kafka, the id is given when a directory"
        " is formatted.",
        internal=True,
    ),
    Setting(
        "broker.rack",
        "string",
        None,
        None,
        "The rack or zone of this broker. Replicas are spread over racks, and clients see the"
        " rack.",
    ),
    Setting(
        "process.roles",
        "list",
        ("broker", "controller"),
        OneOf(("broker", "controller")),
        "The roles of this process. It is always both broker and controller, in a quorum of"
        " one; a list without one of them is refused.",
        "high",
    ),
    Setting(
        "controller.quorum.voters",
        "list",
        (),
        None,
        "The controllers, as id@host:port. The list may contain only this node.",
        "high",
    ),
    Setting(
        "controller.listener.names",
        "list",
        (),
        None,
        "The names of listeners for controllers. They are not bound, because a quorum of one"
        " needs no network.",
        "high",
    ),
    Setting(
        "inter.broker.listener.name",
        "string",
        None,
        None,
        "The listener for connections between brokers. It must be an advertised listener.",
    ),
    Setting(
        "security.inter.broker.protocol",
        "string",
        "PLAINTEXT",
        OneOf(SECURITY_PROTOCOLS),
        "Selects the inter-broker listener if inter.broker.listener.name is not set.",
    ),
    Setting(
        "authorizer.class.name",
        "string",
        "",
        OneOf(("",)),
        "Must be empty. There is no authorizer yet, and ignoring this setting would leave the"
        " broker open.",
        "low",
    ),
)

NETWORK = (
    Setting(
        "listeners",
        "list",
        ("PLAINTEXT://:9092",),
        None,
        "The addresses to bind, as NAME://host:port. An empty host means all interfaces, and"
        " port 0 means any free port. An IPv6 address needs brackets.",
        "high",
    ),
    Setting(
        "advertised.listeners",
        "list",
        None,
        None,
        "The addresses for clients to connect to, if they differ from listeners.",
        "high",
    ),
    Setting(
        "listener.security.protocol.map",
        "string",
        DEFAULT_PROTOCOL_MAP,
        None,
        "The security protocol of each listener name. Only PLAINTEXT listeners are supported;"
        " others are refused.",
        "low",
    ),
    Setting(
        "socket.send.buffer.bytes",
        "int",
        -1,
        AtLeast(-1),
        "The send buffer of client sockets. -1 uses the default of the operating system."
        " Kafka's default is 102400, which costs a third of the throughput.",
        "high",
    ),
    Setting(
        "socket.receive.buffer.bytes",
        "int",
        -1,
        AtLeast(-1),
        "The receive buffer of client sockets. -1 uses the default of the operating system."
        " Kafka's default is 102400, which costs a third of the throughput.",
        "high",
    ),
    Setting(
        "socket.request.max.bytes",
        "int",
        100 * 1024 * 1024,
        AtLeast(1),
        "The maximum size of a request. The broker closes a connection that sends a larger one.",
        "high",
    ),
    Setting(
        "max.connections",
        "int",
        MAX_INT,
        AtLeast(0),
        "The maximum number of connections of the broker.",
        update=CLUSTER_WIDE,
    ),
    Setting(
        "max.connections.per.ip",
        "int",
        MAX_INT,
        AtLeast(0),
        "The maximum number of connections from one address. 0 is allowed only with"
        " max.connections.per.ip.overrides.",
        update=CLUSTER_WIDE,
    ),
    Setting(
        "max.connections.per.ip.overrides",
        "string",
        "",
        None,
        "Limits for single addresses or host names, such as 127.0.0.1:200,client.example:100.",
        update=CLUSTER_WIDE,
    ),
    Setting(
        "connections.max.idle.ms",
        "long",
        600000,
        None,
        "The broker closes a connection that sends no request for this long. A negative value"
        " means never.",
    ),
    Setting(
        "queued.max.request.bytes",
        "long",
        -1,
        None,
        "The maximum memory of all requests that wait for a response. -1 means no limit.",
    ),
    Setting(
        "max.incremental.fetch.session.cache.slots",
        "int",
        1000,
        AtLeast(0),
        "The maximum number of fetch sessions.",
    ),
    Setting(
        "fetch.max.bytes",
        "int",
        55 * 1024 * 1024,
        AtLeast(1024),
        "The maximum size of a fetch response.",
    ),
    Setting(
        "max.request.partition.size.limit",
        "int",
        2000,
        AtLeast(1),
        "The maximum number of partitions in a DescribeTopicPartitions response.",
    ),
)

TOPICS = (
    Setting(
        "auto.create.topics.enable",
        "boolean",
        True,
        None,
        "Create a topic when a client requests the metadata of a topic that does not exist.",
        "high",
    ),
    Setting("delete.topic.enable", "boolean", True, None, "Allow topics to be deleted.", "high"),
    Setting(
        "num.partitions",
        "int",
        1,
        AtLeast(1),
        "The number of partitions of a new topic, if the request does not give one.",
    ),
    Setting(
        "default.replication.factor",
        "int",
        1,
        AtLeast(1),
        "The number of replicas of a new topic, if the request does not give one.",
    ),
)

LOGS = (
    Setting(
        "log.dir",
        "list",
        ("/tmp/kafka-logs",),
        None,
        "The data directories, if log.dirs is not set.",
        "high",
    ),
    Setting(
        "log.dirs",
        "list",
        None,
        None,
        "The data directories. A new partition goes to the directory with the fewest partitions.",
        "high",
    ),
    Setting(
        "log.retention.minutes",
        "int",
        None,
        None,
        "The default of retention.ms in minutes, if log.retention.ms is not set.",
        "high",
    ),
    Setting(
        "log.retention.hours",
        "int",
        168,
        None,
        "The default of retention.ms in hours, if log.retention.ms and log.retention.minutes"
        " are not set.",
        "high",
    ),
    Setting(
        "log.roll.hours",
        "int",
        168,
        AtLeast(1),
        "The default of segment.ms in hours, if log.roll.ms is not set.",
        "high",
    ),
    Setting(
        "log.roll.jitter.hours",
        "int",
        0,
        AtLeast(0),
        "The default of segment.jitter.ms in hours, if log.roll.jitter.ms is not set.",
        "high",
    ),
    Setting(
        "log.flush.scheduler.interval.ms",
        "long",
        MAX_LONG,
        None,
        "How often the broker checks logs for flush.ms. Also the default of flush.ms, if"
        " log.flush.interval.ms is not set.",
        "high",
    ),
    Setting(
        "log.flush.offset.checkpoint.interval.ms",
        "int",
        60000,
        AtLeast(0),
        "How often recovery points are written to their checkpoint file.",
        "high",
    ),
    Setting(
        "log.flush.start.offset.checkpoint.interval.ms",
        "int",
        60000,
        AtLeast(0),
        "How often log start offsets are written to their checkpoint file.",
        "high",
    ),
    Setting(
        "replica.high.watermark.checkpoint.interval.ms",
        "long",
        5000,
        None,
        "How often high watermarks are written to their checkpoint file.",
        "high",
    ),
    Setting(
        "log.retention.check.interval.ms",
        "long",
        300000,
        AtLeast(1),
        "How often the broker checks logs for segments to delete.",
    ),
    Setting(
        "log.initial.task.delay.ms",
        "long",
        30000,
        AtLeast(0),
        "The delay between the start of the broker and the first periodic work on logs.",
        "low",
        internal=True,
    ),
    Setting(
        "producer.id.expiration.ms",
        "int",
        86400000,
        AtLeast(1),
        "How long a partition keeps the last sequences of an idempotent producer that sends"
        " nothing.",
        "low",
        CLUSTER_WIDE,
    ),
    Setting(
        "producer.id.expiration.check.interval.ms",
        "int",
        600000,
        AtLeast(1),
        "How often the broker checks for idempotent producers to expire.",
        "low",
        internal=True,
    ),
    Setting(
        "metadata.log.segment.bytes",
        "int",
        1024 * 1024 * 1024,
        AtLeast(8 * 1024 * 1024),
        "The largest size of a segment of the metadata log.",
        "high",
    ),
    Setting(
        "metadata.log.segment.ms",
        "long",
        7 * 24 * 60 * 60 * 1000,
        None,
        "After which time a new segment of the metadata log is begun.",
        "high",
    ),
    Setting(
        "metadata.log.max.record.bytes.between.snapshots",
        "long",
        20 * 1024 * 1024,
        AtLeast(1),
        "After so many bytes of metadata records a snapshot of the metadata is written.",
        "high",
    ),
    Setting(
        "metadata.log.max.snapshot.interval.ms",
        "long",
        60 * 60 * 1000,
        AtLeast(0),
        "After which time a snapshot is written if there are new records; 0 for no such limit.",
        "high",
    ),
    Setting(
        "metadata.max.retention.bytes",
        "long",
        100 * 1024 * 1024,
        None,
        "How large the metadata log and its snapshots may be together before old ones are"
        " removed; the newest snapshot is always kept. -1 for no limit.",
        "high",
    ),
    Setting(
        "metadata.max.retention.ms",
        "long",
        7 * 24 * 60 * 60 * 1000,
        None,
        "How long an old metadata snapshot, and the records before the next one, are kept."
        " -1 for no limit.",
        "high",
    ),
)
