"""Snapshots of the metadata image, as Kafka writes them (KIP-630).

A snapshot is a file of batches: a control batch with the header, batches with the records that
make the image, and a control batch with the footer, without which the file is not whole. Its
name has the end offset and the epoch of the log records that it stands for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import NamedTuple

from ottla.config.listeners import SECURITY_PROTOCOLS, Endpoint
from ottla.log.segment.batch_scan import check_crc
from ottla.metadata.control_records import control_batch, decode_control
from ottla.metadata.image import (
    BrokerImage,
    ControllerImage,
    FeatureRange,
    MetadataImage,
    PartitionImage,
)
from ottla.metadata.record_versions import METADATA_VERSION, encode_at, level_of
from ottla.metadata.records import (
    BrokerEndpoint,
    BrokerFeature,
    ConfigRecord,
    FeatureLevelRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    TopicRecord,
)
from ottla.metadata.serde import MetadataError, decode_record
from ottla.ports import File
from ottla.records.batch import Batch, CorruptBatch, scan
from ottla.records.record import build_batch, records_of
from ottla.wire.message import Message
from ottla.wire.messages.snapshot_footer_record import SnapshotFooterRecord
from ottla.wire.messages.snapshot_header_record import SnapshotHeaderRecord

SUFFIX = ".checkpoint"
PART_SUFFIX = ".checkpoint.part"
RECORDS_PER_BATCH = 250
"""Takes a millisecond or two to encode: the loop must not stand still longer."""

_READ_BYTES = 1024 * 1024


class SnapshotId(NamedTuple):
    """Which records a snapshot stands for: the offset after the last one, and its epoch."""

    offset: int
    epoch: int

    @property
    def file_name(self) -> str:
        return f"{self.offset:020d}-{self.epoch:010d}{SUFFIX}"

    @property
    def part_name(self) -> str:
        """The name of the file while it is being written."""
        return f"{self.offset:020d}-{self.epoch:010d}{PART_SUFFIX}"


def snapshot_id(file_name: str) -> SnapshotId | None:
    """Return the id in the name of a snapshot, None if it is not such a name."""
    offset, dash, epoch = file_name.removesuffix(SUFFIX).partition("-")
    digits = offset + epoch
    if not (dash and file_name.endswith(SUFFIX) and digits.isascii() and digits.isdigit()):
        return None
    return SnapshotId(int(offset), int(epoch))


# -- image to records ------------------------------------------------------------------------


def image_records(image: MetadataImage) -> Iterator[Message]:
    """Return the records that make an image out of an empty one, features first as in Kafka."""
    for name in sorted(image.features, key=lambda name: (name != METADATA_VERSION, name)):
        yield FeatureLevelRecord(name=name, feature_level=image.features[name])
    yield from node_records(image.brokers, image.controllers)
    for topic in image.topics.values():
        yield TopicRecord(name=topic.name, topic_id=topic.topic_id)
        for partition in topic.partitions:
            yield partition_record(topic.topic_id, partition)
    for (resource_type, resource_name), settings in image.configs.items():
        for name, value in settings.items():
            yield ConfigRecord(
                resource_type=resource_type, resource_name=resource_name, name=name, value=value
            )
    yield from image.security.values()
    if image.next_producer_id:
        yield ProducerIdsRecord(
            broker_id=-1, broker_epoch=-1, next_producer_id=image.next_producer_id
        )


def node_records(
    brokers: Mapping[int, BrokerImage], controllers: Mapping[int, ControllerImage]
) -> Iterator[Message]:
    """Return the records that register brokers and controllers."""
    for broker in brokers.values():
        yield RegisterBrokerRecord(
            broker_id=broker.broker_id,
            incarnation_id=broker.incarnation_id,
            broker_epoch=broker.broker_epoch,
            end_points=_endpoints(broker.endpoints),
            features=_features(broker.features),
            rack=broker.rack,
            fenced=broker.fenced,
            in_controlled_shutdown=broker.in_controlled_shutdown,
            log_dirs=list(broker.log_dirs),
        )
    for controller in controllers.values():
        yield RegisterControllerRecord(
            controller_id=controller.controller_id,
            incarnation_id=controller.incarnation_id,
            zk_migration_ready=controller.zk_migration_ready,
            end_points=_endpoints(controller.endpoints),
            features=_features(controller.features),
        )


def partition_record(topic_id: bytes, partition: PartitionImage) -> PartitionRecord:
    """Return the record that makes a partition."""
    return PartitionRecord(
        partition_id=partition.partition_id,
        topic_id=topic_id,
        replicas=partition.replicas,
        isr=partition.isr,
        removing_replicas=partition.removing_replicas,
        adding_replicas=partition.adding_replicas,
        leader=partition.leader,
        leader_recovery_state=partition.leader_recovery_state,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        directories=partition.directories,
        eligible_leader_replicas=partition.eligible_leader_replicas or None,
        last_known_elr=partition.last_known_elr or None,
    )


def _endpoints(endpoints: Iterable[Endpoint]) -> list[BrokerEndpoint]:
    return [
        BrokerEndpoint(
            name=endpoint.listener_name,
            host=endpoint.host,
            port=endpoint.port,
            security_protocol=SECURITY_PROTOCOLS.index(endpoint.security_protocol),
        )
        for endpoint in endpoints
    ]


def _features(features: Iterable[FeatureRange]) -> list[BrokerFeature]:
    return [
        BrokerFeature(name=name, min_supported_version=lowest, max_supported_version=highest)
        for name, lowest, highest in features
    ]


# -- records to bytes and back ---------------------------------------------------------------


def encode_snapshot(
    image: MetadataImage, timestamp_ms: int, control_records: Iterable[Message] = ()
) -> Iterator[bytearray]:
    """Return the batches of a snapshot one by one; each takes the same small time to make.

    `timestamp_ms` is the time of the last record in the image. `control_records` are the
    voters and the kraft.version, where the log has them.
    """
    header = SnapshotHeaderRecord(last_contained_log_timestamp=timestamp_ms)
    first = [header, *control_records]
    yield control_batch(first, timestamp_ms, leader_epoch=image.epoch)
    offset = len(first)
    records, encode = image_records(image), encode_at(level_of(image))
    while some := list(islice(records, RECORDS_PER_BATCH)):
        yield build_batch(
            [(None, encode(record), timestamp_ms, ()) for record in some],
            base_offset=offset,
            leader_epoch=image.epoch,
        )
        offset += len(some)
    footer = [SnapshotFooterRecord()]
    yield control_batch(footer, timestamp_ms, base_offset=offset, leader_epoch=image.epoch)


def decode_snapshot(file: File) -> Iterator[Message]:
    """Return the records of a snapshot, control records included; raise MetadataError at damage.

    The header comes first and the footer last. Without them the records must not be used.
    """
    is_first, is_whole = True, False
    for batch, data in _batches(file):
        if is_whole:
            raise MetadataError(f"{file.path}: there are records after the footer")
        for record in records_of(data):
            message = (
                decode_control(record) if batch.is_control else decode_record(record.value or b"")
            )
            if is_first and not isinstance(message, SnapshotHeaderRecord):
                raise MetadataError(f"{file.path}: the snapshot has no header")
            is_first, is_whole = False, isinstance(message, SnapshotFooterRecord)
            if message is not None:
                yield message
    if not is_whole:
        raise MetadataError(f"{file.path}: the snapshot has no footer")


def _batches(file: File) -> Iterator[tuple[Batch, bytes]]:
    """Return the batches of a file with their bytes, a part of it in memory at a time."""
    position, size, wanted = 0, file.size(), _READ_BYTES
    while position < size:
        data = file.pread(wanted, position)
        end = 0
        try:
            for batch in scan(data, 0, len(data)):
                check_crc(data, batch, batch.position)
                yield batch, data[batch.position : batch.end]
                end = batch.end
        except CorruptBatch as error:
            raise MetadataError(f"{file.path}: {error}") from error
        if not end and len(data) < wanted:
            raise MetadataError(f"{file.path}: the last batch is incomplete")
        wanted = _READ_BYTES if end else wanted * 2
        position += end
