"""Looks for a key in the objects that a partition has in the remote tier.

Every log object is read, whether a manifest names it or not: also those of segments that were
replaced, and those of uploads and deletions that have not ended.
"""

from __future__ import annotations

from ottla.cli.erase.replica_search import ReplicaFinding, SegmentFinding
from ottla.cli.tier.source import TierSource
from ottla.model.ids import uuid_to_text
from ottla.ports import ObjectNotFound, ObjectStoreError
from ottla.records.batch import CorruptBatch
from ottla.server.object_stores.blocking_store import all_objects
from ottla.tier_reader.batch_stream import batches_in
from ottla.tier_reader.errors import DamagedObject
from ottla.tier_reader.objects import read_in_pieces
from ottla.tiered.layout import LOG, SegmentObject, parse_object, partition_prefix
from ottla.tiered.manifest import Manifest, ObjectSummary

_MAX_OFFSET = 2**63 - 1


def search_tier(source: TierSource, partition: int, key: bytes) -> ReplicaFinding:
    """Look for a key in all objects of a partition. Those that vanish meanwhile are left out."""
    prefix = partition_prefix(source.topic, source.topic_id, partition)
    found: list[SegmentFinding] = []
    try:
        for each in list(all_objects(source.store, prefix)):
            parsed = parse_object(each.key.removeprefix(prefix))
            if parsed is None or parsed.kind != LOG:
                continue
            try:
                found.append(_search_object(source, partition, parsed, each.size, key))
            except ObjectNotFound:
                continue
    except (ObjectStoreError, DamagedObject, CorruptBatch) as error:
        return ReplicaFinding(None, partition, found, str(error))
    return ReplicaFinding(None, partition, found)


def _search_object(
    source: TierSource, partition: int, segment: SegmentObject, size: int, key: bytes
) -> SegmentFinding:
    manifest = Manifest(
        topic=source.topic,
        topic_id=source.topic_id,
        partition=partition,
        segment_id=segment.segment_id,
        start_offset=segment.start_offset,
        end_offset=_MAX_OFFSET,
        max_timestamp_ms=-1,
        broker_id=0,
        event_timestamp_ms=0,
        leader_epochs=(),
        objects={LOG: ObjectSummary(size, 0)},
    )
    values: list[int] = []
    tombstones: list[int] = []
    records = 0
    for batch in batches_in(read_in_pieces(source.store, manifest.key(LOG), 0, size), manifest, 0):
        if batch.header.is_control:
            continue
        for record in batch.records():
            records += 1
            if record.key == key:
                (tombstones if record.value is None else values).append(record.offset)
    name = uuid_to_text(segment.segment_id)
    return SegmentFinding(segment.start_offset, size, records, values, tombstones, name)
