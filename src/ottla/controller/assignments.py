"""Partition records for replicas that the controller chose or the client assigned."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.metadata.image import MetadataImage
from ottla.metadata.records import PartitionRecord
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.ids import UNASSIGNED_DIRECTORY


def check_assignment(
    image: MetadataImage, replicas: Sequence[int], replication_factor: int | None
) -> None:
    """Raise INVALID_REPLICA_ASSIGNMENT unless these replicas are possible."""
    if not replicas:
        raise _invalid("The manual partition assignment includes an empty replica list.")
    for broker_id in sorted(replicas):
        if broker_id not in image.brokers:
            raise _invalid(
                f"The manual partition assignment includes broker {broker_id}, but no such broker"
                " is registered."
            )
        if replicas.count(broker_id) > 1:
            raise _invalid(
                f"The manual partition assignment includes the broker {broker_id} more than once."
            )
    if replication_factor is not None and len(replicas) != replication_factor:
        raise _invalid(
            f"The manual partition assignment includes a partition with {len(replicas)}"
            f" replica(s), but this is not consistent with previous partitions, which have"
            f" {replication_factor} replica(s)."
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
        directories=[directory_of(image, broker_id) for broker_id in replicas],
    )


def directory_of(image: MetadataImage, broker_id: int) -> bytes:
    """Return the log directory for a replica; with several, the broker chooses (KIP-858)."""
    broker = image.brokers.get(broker_id)
    if broker is None or len(broker.log_dirs) != 1:
        return UNASSIGNED_DIRECTORY
    return broker.log_dirs[0]


def _invalid(message: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
