"""Kafka's names of files and directories."""

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
CLEANER_OFFSETS = "cleaner-offset-checkpoint"
LOG_START_OFFSETS = "log-start-offset-checkpoint"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"

DELETE_DIR = "-delete"
FUTURE_DIR = "-future"
STRAY_DIR = "-stray"

_MAX_NAME = 255
_UNIQUE = 32  # hexadecimal digits


def offset_name(offset: int, suffix: str) -> str:
    """Return the name of the file of a kind that begins at an offset."""
    return f"{offset:020d}{suffix}"


def offset_of(name: str) -> int | None:
    """Return the offset that a file name begins with, or None if there is none."""
    digits = name.partition(".")[0]
    return int(digits) if digits.isascii() and digits.isdigit() else None


def partition_of(directory_name: str) -> TopicPartition | None:
    """Return the partition whose directory has this name, or None."""
    topic, dash, number = directory_name.rpartition("-")
    if not dash or not topic or not (number.isascii() and number.isdigit()):
        return None
    return TopicPartition(topic, int(number))


def future_partition(directory_name: str) -> TopicPartition | None:
    """Return the partition whose log was moving to a directory with this name, or None.

    None also for a topic with so long a name that it was cut off.
    """
    name, _, rest = directory_name.rpartition(".")
    unique = rest.removesuffix(FUTURE_DIR)
    if len(unique) != _UNIQUE or unique == rest or len(directory_name) == _MAX_NAME:
        return None
    return partition_of(name)


def retired_directory(partition: TopicPartition, unique: bytes, kind: str) -> str:
    """Return a new name for a directory that will be deleted, or that has no topic (STRAY_DIR)."""
    suffix = f"-{partition.partition}.{unique.hex()}{kind}"
    return partition.topic[: _MAX_NAME - len(suffix)] + suffix
