"""Names of files and directories, as Kafka gives them."""

from __future__ import annotations

from ottla.model.ids import TopicPartition

LOG = ".log"
INDEX = ".index"
TIME_INDEX = ".timeindex"
TXN_INDEX = ".txnindex"
SNAPSHOT = ".snapshot"
DELETED = ".deleted"
CLEANED = ".cleaned"
SWAP = ".swap"
TEMPORARY = ".tmp"

SEGMENT_SUFFIXES = (LOG, INDEX, TIME_INDEX, TXN_INDEX)

LEADER_EPOCHS = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"

META_PROPERTIES = "meta.properties"
RECOVERY_POINTS = "recovery-point-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
LOG_START_OFFSETS = "log-start-offset-checkpoint"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
LOCK = ".lock"

DELETE_DIR = "-delete"
FUTURE_DIR = "-future"
STRAY_DIR = "-stray"

_MAX_NAME = 255


def offset_name(offset: int, suffix: str) -> str:
    """The name of the file of that kind that begins at an offset."""
    return f"{offset:020d}{suffix}"


def offset_of(name: str) -> int | None:
    """The offset a file name begins with, or None when it is not such a name."""
    digits = name.partition(".")[0]
    return int(digits) if digits.isascii() and digits.isdigit() else None


def partition_of(directory_name: str) -> TopicPartition | None:
    """The partition whose directory has this name, or None when it is no partition's."""
    topic, dash, number = directory_name.rpartition("-")
    if not dash or not topic or not (number.isascii() and number.isdigit()):
        return None
    return TopicPartition(topic, int(number))


def retired_directory(partition: TopicPartition, unique: bytes, kind: str) -> str:
    """The name of a partition's directory that waits for removal, or is nobody's (STRAY_DIR)."""
    suffix = f"-{partition.partition}.{unique.hex()}{kind}"
    return partition.topic[: _MAX_NAME - len(suffix)] + suffix
