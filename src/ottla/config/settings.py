"""Broker settings that this broker acts on, other than the defaults of topic settings."""

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
        "The id of this node in its cluster. Without it broker.id is used, and without that 1.",
        "high",
    ),
    Setting(
        "broker.id", "int", -1, AtLeast(-1), "The old name of node.id; -1 leaves it open.", "high"
    ),
    Setting(
        "cluster.id",
        "string",
        None,
        None,
        "The id the cluster is to have: given to empty data directories, demanded of others."
        " Without it, empty ones get a new one. Kafka takes it when it formats a directory.",
        internal=True,
    ),
    Setting(
        "broker.rack",
        "string",
        None,
        None,
        "The rack or zone of this broker: replicas are spread over racks, and clients see it.",
    ),
    Setting(
        "process.roles",
        "list",
        ("broker", "controller"),
        OneOf(("broker", "controller")),
        "What this process is. It is always both, a quorum of one: a list without one of them"
        " is refused.",
        "high",
    ),
    Setting(
        "controller.quorum.voters",
        "list",
        (),
        None,
        "The controllers, as id@host:port. Only this node itself may be named.",
        "high",
    ),
    Setting(
        "controller.listener.names",
        "list",
        (),
        None,
        "Listeners kept for controllers. They are not bound: a quorum of one talks to nobody.",
        "high",
    ),
    Setting(
        "inter.broker.listener.name",
        "string",
        None,
        None,
        "The listener brokers use among themselves; it must be one of the advertised ones.",
    ),
    Setting(
        "security.inter.broker.protocol",
        "string",
        "PLAINTEXT",
        OneOf(SECURITY_PROTOCOLS),
        "Names the inter-broker listener when inter.broker.listener.name does not.",
    ),
    Setting(
        "authorizer.class.name",
        "string",
        "",
        OneOf(("",)),
        "Must stay empty: there is no authorizer yet, and to ignore one would open the broker.",
        "low",
    ),
)

NETWORK = (
    Setting(
        "listeners",
        "list",
        ("PLAINTEXT://:9092",),
        None,
        "The addresses to bind, as NAME://host:port. An empty host is every interface, port 0"
        " any free one; an IPv6 address stands in brackets.",
        "high",
    ),
    Setting(
        "advertised.listeners",
        "list",
        None,
        None,
        "The addresses clients are told, where they differ from listeners.",
        "high",
    ),
    Setting(
        "listener.security.protocol.map",
        "string",
        DEFAULT_PROTOCOL_MAP,
        None,
        "The security protocol of each listener name. Listeners with another than PLAINTEXT"
        " are refused.",
        "low",
    ),
    Setting(
        "socket.send.buffer.bytes",
        "int",
        -1,
        AtLeast(-1),
        "The send buffer of client sockets; -1 leaves it to the operating system. Kafka's default"
        " is 102400, which costs a third of the throughput.",
        "high",
    ),
    Setting(
        "socket.receive.buffer.bytes",
        "int",
        -1,
        AtLeast(-1),
        "The receive buffer of client sockets; -1 leaves it to the operating system. Kafka's"
        " default is 102400, which costs a third of the throughput.",
        "high",
    ),
    Setting(
        "socket.request.max.bytes",
        "int",
        100 * 1024 * 1024,
        AtLeast(1),
        "The largest request; a connection that announces a larger one is closed.",
        "high",
    ),
    Setting(
        "max.connections",
        "int",
        MAX_INT,
        AtLeast(0),
        "How many connections the broker holds at a time.",
        update=CLUSTER_WIDE,
    ),
    Setting(
        "max.connections.per.ip",
        "int",
        MAX_INT,
        AtLeast(0),
        "How many connections one address may hold; 0 only together with overrides.",
        update=CLUSTER_WIDE,
    ),
    Setting(
        "max.connections.per.ip.overrides",
        "string",
        "",
        None,
        "Limits of single addresses or names, as in 127.0.0.1:200,client.example:100.",
        update=CLUSTER_WIDE,
    ),
    Setting(
        "connections.max.idle.ms",
        "long",
        600000,
        None,
        "A connection without a request for so long is closed; negative never.",
    ),
    Setting(
        "queued.max.request.bytes",
        "long",
        -1,
        None,
        "The memory that received and unanswered requests may take together; -1 is no limit.",
    ),
    Setting(
        "max.incremental.fetch.session.cache.slots",
        "int",
        1000,
        AtLeast(0),
        "How many fetch sessions are kept at most.",
    ),
    Setting(
        "fetch.max.bytes", "int", 55 * 1024 * 1024, AtLeast(1024), "The largest fetch response."
    ),
    Setting(
        "max.request.partition.size.limit",
        "int",
        2000,
        AtLeast(1),
        "How many partitions one DescribeTopicPartitions response carries at most.",
    ),
)

TOPICS = (
    Setting(
        "auto.create.topics.enable",
        "boolean",
        True,
        None,
        "Create a topic when a client asks for the metadata of one that does not exist.",
        "high",
    ),
    Setting("delete.topic.enable", "boolean", True, None, "Let topics be deleted.", "high"),
    Setting(
        "num.partitions",
        "int",
        1,
        AtLeast(1),
        "The partitions of a topic that is created without saying how many.",
    ),
    Setting(
        "default.replication.factor",
        "int",
        1,
        AtLeast(1),
        "The replicas of a topic that is created without saying how many.",
    ),
)

LOGS = (
    Setting(
        "log.dir",
        "list",
        ("/tmp/kafka-logs",),
        None,
        "The data directories when log.dirs is not set.",
        "high",
    ),
    Setting(
        "log.dirs",
        "list",
        None,
        None,
        "The data directories; a new partition goes to the one with the fewest.",
        "high",
    ),
    Setting(
        "log.retention.minutes",
        "int",
        None,
        None,
        "The default of retention.ms in minutes, when log.retention.ms is not set.",
        "high",
    ),
    Setting(
        "log.retention.hours",
        "int",
        168,
        None,
        "The default of retention.ms in hours, when the two finer settings are not set.",
        "high",
    ),
    Setting(
        "log.roll.hours",
        "int",
        168,
        AtLeast(1),
        "The default of segment.ms in hours, when log.roll.ms is not set.",
        "high",
    ),
    Setting(
        "log.roll.jitter.hours",
        "int",
        0,
        AtLeast(0),
        "The default of segment.jitter.ms in hours, when log.roll.jitter.ms is not set.",
        "high",
    ),
    Setting(
        "log.flush.scheduler.interval.ms",
        "long",
        MAX_LONG,
        None,
        "How often logs are looked over for flush.ms; also its default when"
        " log.flush.interval.ms is not set.",
        "high",
    ),
    Setting(
        "log.flush.offset.checkpoint.interval.ms",
        "int",
        60000,
        AtLeast(0),
        "How often recovery points are written down.",
        "high",
    ),
    Setting(
        "log.flush.start.offset.checkpoint.interval.ms",
        "int",
        60000,
        AtLeast(0),
        "How often log start offsets are written down.",
        "high",
    ),
    Setting(
        "replica.high.watermark.checkpoint.interval.ms",
        "long",
        5000,
        None,
        "How often high watermarks are written down.",
        "high",
    ),
    Setting(
        "log.retention.check.interval.ms",
        "long",
        300000,
        AtLeast(1),
        "How often logs are looked over for segments to delete.",
    ),
    Setting(
        "log.initial.task.delay.ms",
        "long",
        30000,
        AtLeast(0),
        "How long after the start the periodic work on logs begins.",
        "low",
        internal=True,
    ),
    Setting(
        "producer.id.expiration.ms",
        "int",
        86400000,
        AtLeast(1),
        "How long a partition remembers the last batches of a silent idempotent producer.",
        "low",
        CLUSTER_WIDE,
    ),
    Setting(
        "producer.id.expiration.check.interval.ms",
        "int",
        600000,
        AtLeast(1),
        "How often producers are looked over for silent ones.",
        "low",
        internal=True,
    ),
)
