"""Partition records for replicas that the controller chose or the client assigned."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.metadata.image import MetadataImage
from ottla.metadata.records import PartitionRecord
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.ids import ZERO_UUID

UNASSIGNED_DIRECTORY = ZERO_UUID


def check_assignment(
    image: MetadataImage, replicas: Sequence[int], replication_factor: int | None
) -> None:
    """Raise INVALID_REPLICA_ASSIGNMENT unless these replicas are possible."""
    if not replicas:
        raise _invalid("A manual assignment has a partition without replicas")
    for broker_id in sorted(replicas):
        if broker_id not in image.brokers:
            raise _invalid(f"A manual assignment names broker {broker_id}, which does not exist")
        if replicas.count(broker_id) > 1:
            raise _invalid(f"A manual assignment names broker {broker_id} twice for a partition")
    if replication_factor is not None and len(replicas) != replication_factor:
        raise _invalid(
            f"A manual assignment has a partition with {len(replicas)} replicas"
            f" where the others have {replication_factor}"
        )
    if not any(image.brokers[broker_id].active for broker_id in replicas):
        raise _invalid(f"All of the brokers {sorted(replicas)} are fenced or stopping")


def new_partition(
    image: MetadataImage, topic_id: bytes, partition_id: int, replicas: Sequence[int]
) -> PartitionRecord:
    """Return the record of a new partition: active replicas are in sync, the first one leads."""
    isr = [broker_id for broker_id in replicas if image.brokers[broker_id].active]
    return PartitionRecord(
        partition_id=partition_id,
        topic_id=topic_id,
        replicas=list(replicas),
        isr=isr,
        leader=isr[0],
        leader_epoch=0,
        partition_epoch=0,
        directories=[_directory(image, broker_id) for broker_id in replicas],
    )


def _directory(image: MetadataImage, broker_id: int) -> bytes:
    """Return the log directory for a replica; with several, the broker chooses (KIP-858)."""
    directories = image.brokers[broker_id].log_dirs
    return directories[0] if len(directories) == 1 else UNASSIGNED_DIRECTORY


def _invalid(message: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
