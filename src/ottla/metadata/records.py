"""The records of the metadata log, as Kafka's schemas lay them out (KIP-631, KIP-858, KIP-966).

Each class stands for all versions of its record, declared like the messages of the wire
and encoded by the same codec; `serde` puts the frame around it. Ottla writes the newest
version it knows, and reads all.
"""

from __future__ import annotations

from ottla.model.ids import ZERO_UUID
from ottla.wire.message import Field, Items, Message, as_list

NO_LEADER = -1
NO_LEADER_CHANGE = -2


class BrokerEndpoint(Message):
    __slots__ = ("host", "name", "port", "security_protocol")
    FIELDS = (
        Field("name", "string", (0, 3)),
        Field("host", "string", (0, 3)),
        Field("port", "uint16", (0, 3)),
        Field("security_protocol", "int16", (0, 3)),
    )

    def __init__(
        self, *, name: str = "", host: str = "", port: int = 0, security_protocol: int = 0
    ) -> None:
        self.name = name
        self.host = host
        self.port = port
        self.security_protocol = security_protocol


class BrokerFeature(Message):
    __slots__ = ("max_supported_version", "min_supported_version", "name")
    FIELDS = (
        Field("name", "string", (0, 3)),
        Field("min_supported_version", "int16", (0, 3)),
        Field("max_supported_version", "int16", (0, 3)),
    )

    def __init__(
        self, *, name: str = "", min_supported_version: int = 0, max_supported_version: int = 0
    ) -> None:
        self.name = name
        self.min_supported_version = min_supported_version
        self.max_supported_version = max_supported_version


class RegisterBrokerRecord(Message):
    """A broker came up, with these addresses and log directories."""

    __slots__ = (
        "broker_epoch",
        "broker_id",
        "end_points",
        "features",
        "fenced",
        "in_controlled_shutdown",
        "incarnation_id",
        "is_migrating_zk_broker",
        "log_dirs",
        "rack",
    )
    API_KEY = 0
    MIN_VERSION = 0
    MAX_VERSION = 3
    FIRST_FLEXIBLE_VERSION = 0
    FIELDS = (
        Field("broker_id", "int32", (0, 3)),
        Field("is_migrating_zk_broker", "bool", (2, 3)),
        Field("incarnation_id", "uuid", (0, 3)),
        Field("broker_epoch", "int64", (0, 3)),
        Field("end_points", "array", (0, 3), of=BrokerEndpoint),
        Field("features", "array", (0, 3), of=BrokerFeature),
        Field("rack", "string", (0, 3), nullable=(0, 3)),
        Field("fenced", "bool", (0, 3)),
        Field("in_controlled_shutdown", "bool", (1, 3)),
        Field("log_dirs", "array", (3, 3), of="uuid", tag=0),
    )

    def __init__(
        self,
        *,
        broker_id: int = 0,
        is_migrating_zk_broker: bool = False,
        incarnation_id: bytes = ZERO_UUID,
        broker_epoch: int = 0,
        end_points: Items[BrokerEndpoint] = (),
        features: Items[BrokerFeature] = (),
        rack: str | None = None,
        fenced: bool = True,
        in_controlled_shutdown: bool = False,
        log_dirs: Items[bytes] = (),
    ) -> None:
        self.broker_id = broker_id
        self.is_migrating_zk_broker = is_migrating_zk_broker
        self.incarnation_id = incarnation_id
        self.broker_epoch = broker_epoch
        self.end_points = as_list(end_points)
        self.features = as_list(features)
        self.rack = rack
        self.fenced = fenced
        self.in_controlled_shutdown = in_controlled_shutdown
        self.log_dirs = as_list(log_dirs)


class UnregisterBrokerRecord(Message):
    """A broker left the cluster for good."""

    __slots__ = ("broker_epoch", "broker_id")
    API_KEY = 1
    MIN_VERSION = 0
    MAX_VERSION = 0
    FIRST_FLEXIBLE_VERSION = 0
    FIELDS = (Field("broker_id", "int32", (0, 0)), Field("broker_epoch", "int64", (0, 0)))

    def __init__(self, *, broker_id: int = 0, broker_epoch: int = 0) -> None:
        self.broker_id = broker_id
        self.broker_epoch = broker_epoch


class TopicRecord(Message):
    """A topic was created; its partitions follow."""

    __slots__ = ("name", "topic_id")
    API_KEY = 2
    MIN_VERSION = 0
    MAX_VERSION = 0
    FIRST_FLEXIBLE_VERSION = 0
    FIELDS = (Field("name", "string", (0, 0)), Field("topic_id", "uuid", (0, 0)))

    def __init__(self, *, name: str = "", topic_id: bytes = ZERO_UUID) -> None:
        self.name = name
        self.topic_id = topic_id


class PartitionRecord(Message):
    """A partition was created; in a snapshot, a partition as it is."""

    __slots__ = (
        "adding_replicas",
        "directories",
        "eligible_leader_replicas",
        "isr",
        "last_known_elr",
        "leader",
        "leader_epoch",
        "leader_recovery_state",
        "partition_epoch",
        "partition_id",
        "removing_replicas",
        "replicas",
        "topic_id",
    )
    API_KEY = 3
    MIN_VERSION = 0
    MAX_VERSION = 2
    FIRST_FLEXIBLE_VERSION = 0
    FIELDS = (
        Field("partition_id", "int32", (0, 2)),
        Field("topic_id", "uuid", (0, 2)),
        Field("replicas", "array", (0, 2), of="int32"),
        Field("isr", "array", (0, 2), of="int32"),
        Field("removing_replicas", "array", (0, 2), of="int32"),
        Field("adding_replicas", "array", (0, 2), of="int32"),
        Field("leader", "int32", (0, 2)),
        Field("leader_recovery_state", "int8", (0, 2), tag=0),
        Field("leader_epoch", "int32", (0, 2)),
        Field("partition_epoch", "int32", (0, 2)),
        Field("directories", "array", (1, 2), of="uuid"),
        Field("eligible_leader_replicas", "array", (2, 2), of="int32", nullable=(2, 2), tag=1),
        Field("last_known_elr", "array", (2, 2), of="int32", nullable=(2, 2), tag=2),
    )

    def __init__(
        self,
        *,
        partition_id: int = -1,
        topic_id: bytes = ZERO_UUID,
        replicas: Items[int] = (),
        isr: Items[int] = (),
        removing_replicas: Items[int] = (),
        adding_replicas: Items[int] = (),
        leader: int = NO_LEADER,
        leader_recovery_state: int = 0,
        leader_epoch: int = -1,
        partition_epoch: int = -1,
        directories: Items[bytes] = (),
        eligible_leader_replicas: Items[int] | None = None,
        last_known_elr: Items[int] | None = None,
    ) -> None:
        self.partition_id = partition_id
        self.topic_id = topic_id
        self.replicas = as_list(replicas)
        self.isr = as_list(isr)
        self.removing_replicas = as_list(removing_replicas)
        self.adding_replicas = as_list(adding_replicas)
        self.leader = leader
        self.leader_recovery_state = leader_recovery_state
        self.leader_epoch = leader_epoch
        self.partition_epoch = partition_epoch
        self.directories = as_list(directories)
        self.eligible_leader_replicas = (
            None if eligible_leader_replicas is None else as_list(eligible_leader_replicas)
        )
        self.last_known_elr = None if last_known_elr is None else as_list(last_known_elr)


class PartitionChangeRecord(Message):
    """A partition changed. None, or -2 for the leader, stands for what did not change."""

    __slots__ = (
        "adding_replicas",
        "directories",
        "eligible_leader_replicas",
        "isr",
        "last_known_elr",
        "leader",
        "leader_recovery_state",
        "partition_id",
        "removing_replicas",
        "replicas",
        "topic_id",
    )
    API_KEY = 5
    MIN_VERSION = 0
    MAX_VERSION = 2
    FIRST_FLEXIBLE_VERSION = 0
    FIELDS = (
        Field("partition_id", "int32", (0, 2)),
        Field("topic_id", "uuid", (0, 2)),
        Field("isr", "array", (0, 2), of="int32", nullable=(0, 2), tag=0),
        Field("leader", "int32", (0, 2), tag=1),
        Field("replicas", "array", (0, 2), of="int32", nullable=(0, 2), tag=2),
        Field("removing_replicas", "array", (0, 2), of="int32", nullable=(0, 2), tag=3),
        Field("adding_replicas", "array", (0, 2), of="int32", nullable=(0, 2), tag=4),
        Field("leader_recovery_state", "int8", (0, 2), tag=5),
        Field("eligible_leader_replicas", "array", (2, 2), of="int32", nullable=(2, 2), tag=6),
        Field("last_known_elr", "array", (2, 2), of="int32", nullable=(2, 2), tag=7),
        Field("directories", "array", (1, 2), of="uuid", nullable=(1, 2), tag=8),
    )

    def __init__(
        self,
        *,
        partition_id: int = -1,
        topic_id: bytes = ZERO_UUID,
        isr: list[int] | None = None,
        leader: int = NO_LEADER_CHANGE,
        replicas: list[int] | None = None,
        removing_replicas: list[int] | None = None,
        adding_replicas: list[int] | None = None,
        leader_recovery_state: int = -1,
        directories: list[bytes] | None = None,
        eligible_leader_replicas: list[int] | None = None,
        last_known_elr: list[int] | None = None,
    ) -> None:
        self.partition_id = partition_id
        self.topic_id = topic_id
        self.isr = isr
        self.leader = leader
        self.replicas = replicas
        self.removing_replicas = removing_replicas
        self.adding_replicas = adding_replicas
        self.leader_recovery_state = leader_recovery_state
        self.directories = directories
        self.eligible_leader_replicas = eligible_leader_replicas
        self.last_known_elr = last_known_elr


class ConfigRecord(Message):
    """A setting of a resource was set, or removed if the value is None."""

    __slots__ = ("name", "resource_name", "resource_type", "value")
    API_KEY = 4
    MIN_VERSION = 0
    MAX_VERSION = 0
    FIRST_FLEXIBLE_VERSION = 0
    FIELDS = (
        Field("resource_type", "int8", (0, 0)),
        Field("resource_name", "string", (0, 0)),
        Field("name", "string", (0, 0)),
        Field("value", "string", (0, 0), nullable=(0, 0)),
    )

    def __init__(
        self,
        *,
        resource_type: int = 0,
        resource_name: str = "",
        name: str = "",
        value: str | None = "",
    ) -> None:
        self.resource_type = resource_type
        self.resource_name = resource_name
        self.name = name
        self.value = value


class RemoveTopicRecord(Message):
    """A topic was deleted, with its partitions and settings."""

    __slots__ = ("topic_id",)
    API_KEY = 9
    MIN_VERSION = 0
    MAX_VERSION = 0
    FIRST_FLEXIBLE_VERSION = 0
    FIELDS = (Field("topic_id", "uuid", (0, 0)),)

    def __init__(self, *, topic_id: bytes = ZERO_UUID) -> None:
        self.topic_id = topic_id


class FeatureLevelRecord(Message):
    """The level of a feature for the whole cluster; 0 removes the feature."""

    __slots__ = ("feature_level", "name")
    API_KEY = 12
    MIN_VERSION = 0
    MAX_VERSION = 0
    FIRST_FLEXIBLE_VERSION = 0
    FIELDS = (Field("name", "string", (0, 0)), Field("feature_level", "int16", (0, 0)))

    def __init__(self, *, name: str = "", feature_level: int = 0) -> None:
        self.name = name
        self.feature_level = feature_level


class ProducerIdsRecord(Message):
    """A block of producer ids was given to a broker; the next block begins here."""

    __slots__ = ("broker_epoch", "broker_id", "next_producer_id")
    API_KEY = 15
    MIN_VERSION = 0
    MAX_VERSION = 0
    FIRST_FLEXIBLE_VERSION = 0
    FIELDS = (
        Field("broker_id", "int32", (0, 0)),
        Field("broker_epoch", "int64", (0, 0)),
        Field("next_producer_id", "int64", (0, 0)),
    )

    def __init__(
        self, *, broker_id: int = 0, broker_epoch: int = -1, next_producer_id: int = 0
    ) -> None:
        self.broker_id = broker_id
        self.broker_epoch = broker_epoch
        self.next_producer_id = next_producer_id


class BrokerRegistrationChangeRecord(Message):
    """A registered broker was fenced (1) or unfenced (-1), shuts down, or lost directories."""

    __slots__ = ("broker_epoch", "broker_id", "fenced", "in_controlled_shutdown", "log_dirs")
    API_KEY = 17
    MIN_VERSION = 0
    MAX_VERSION = 2
    FIRST_FLEXIBLE_VERSION = 0
    FIELDS = (
        Field("broker_id", "int32", (0, 2)),
        Field("broker_epoch", "int64", (0, 2)),
        Field("fenced", "int8", (0, 2), tag=0),
        Field("in_controlled_shutdown", "int8", (1, 2), tag=1),
        Field("log_dirs", "array", (2, 2), of="uuid", tag=2),
    )

    def __init__(
        self,
        *,
        broker_id: int = 0,
        broker_epoch: int = 0,
        fenced: int = 0,
        in_controlled_shutdown: int = 0,
        log_dirs: Items[bytes] = (),
    ) -> None:
        self.broker_id = broker_id
        self.broker_epoch = broker_epoch
        self.fenced = fenced
        self.in_controlled_shutdown = in_controlled_shutdown
        self.log_dirs = as_list(log_dirs)


class NoOpRecord(Message):
    """No change. Kafka's controller writes it regularly as a sign of life."""

    __slots__ = ()
    API_KEY = 20
    MIN_VERSION = 0
    MAX_VERSION = 0
    FIRST_FLEXIBLE_VERSION = 0


class BeginTransactionRecord(Message):
    """The records up to the matching end belong together, over several batches (KIP-868)."""

    __slots__ = ("name",)
    API_KEY = 23
    MIN_VERSION = 0
    MAX_VERSION = 0
    FIRST_FLEXIBLE_VERSION = 0
    FIELDS = (Field("name", "string", (0, 0), nullable=(0, 0), tag=0),)

    def __init__(self, *, name: str | None = None) -> None:
        self.name = name


class EndTransactionRecord(Message):
    """The transaction is complete: its records count."""

    __slots__ = ()
    API_KEY = 24
    MIN_VERSION = 0
    MAX_VERSION = 0
    FIRST_FLEXIBLE_VERSION = 0


class AbortTransactionRecord(Message):
    """The transaction is aborted: its records do not count."""

    __slots__ = ("reason",)
    API_KEY = 25
    MIN_VERSION = 0
    MAX_VERSION = 0
    FIRST_FLEXIBLE_VERSION = 0
    FIELDS = (Field("reason", "string", (0, 0), nullable=(0, 0), tag=0),)

    def __init__(self, *, reason: str | None = None) -> None:
        self.reason = reason


class ZkMigrationStateRecord(Message):
    """The state of a migration from ZooKeeper. New Kafka clusters write that there is none."""

    __slots__ = ("zk_migration_state",)
    API_KEY = 21
    MIN_VERSION = 0
    MAX_VERSION = 0
    FIRST_FLEXIBLE_VERSION = 0
    FIELDS = (Field("zk_migration_state", "int8", (0, 0)),)

    def __init__(self, *, zk_migration_state: int = 0) -> None:
        self.zk_migration_state = zk_migration_state


class RegisterControllerRecord(Message):
    """A controller started, with these addresses (KIP-919)."""

    __slots__ = ("controller_id", "end_points", "features", "incarnation_id", "zk_migration_ready")
    API_KEY = 27
    MIN_VERSION = 0
    MAX_VERSION = 0
    FIRST_FLEXIBLE_VERSION = 0
    FIELDS = (
        Field("controller_id", "int32", (0, 0)),
        Field("incarnation_id", "uuid", (0, 0)),
        Field("zk_migration_ready", "bool", (0, 0)),
        Field("end_points", "array", (0, 0), of=BrokerEndpoint),
        Field("features", "array", (0, 0), of=BrokerFeature),
    )

    def __init__(
        self,
        *,
        controller_id: int = 0,
        incarnation_id: bytes = ZERO_UUID,
        zk_migration_ready: bool = False,
        end_points: Items[BrokerEndpoint] = (),
        features: Items[BrokerFeature] = (),
    ) -> None:
        self.controller_id = controller_id
        self.incarnation_id = incarnation_id
        self.zk_migration_ready = zk_migration_ready
        self.end_points = as_list(end_points)
        self.features = as_list(features)


class ClearElrRecord(Message):
    """The eligible leader replicas of a topic are void; without a name, those of all topics."""

    __slots__ = ("topic_name",)
    API_KEY = 28
    MIN_VERSION = 0
    MAX_VERSION = 0
    FIRST_FLEXIBLE_VERSION = 0
    FIELDS = (Field("topic_name", "string", (0, 0), nullable=(0, 0)),)

    def __init__(self, *, topic_name: str | None = "") -> None:
        self.topic_name = topic_name


_RECORDS: tuple[type[Message], ...] = (
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
    TopicRecord,
    PartitionRecord,
    ConfigRecord,
    PartitionChangeRecord,
    RemoveTopicRecord,
    FeatureLevelRecord,
    ProducerIdsRecord,
    BrokerRegistrationChangeRecord,
    NoOpRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    AbortTransactionRecord,
    ZkMigrationStateRecord,
    RegisterControllerRecord,
    ClearElrRecord,
)
RECORD_TYPES: dict[int, type[Message]] = {record.API_KEY: record for record in _RECORDS}
"""The records that every cluster may have. `security_records` has more."""
