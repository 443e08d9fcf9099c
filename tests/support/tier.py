"""Remote segments for tests: the closed segments of a log, put into a store."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.log.file_names import INDEX as INDEX_FILE
from ottla.log.file_names import LOG as LOG_FILE
from ottla.log.file_names import SNAPSHOT as SNAPSHOT_FILE
from ottla.log.file_names import TIME_INDEX as TIME_INDEX_FILE
from ottla.log.file_names import TXN_INDEX as TXN_INDEX_FILE
from ottla.log.log import Log
from ottla.log.segment.segment import Segment
from ottla.log.state.leader_epochs import EpochCache, EpochEntry
from ottla.model.ids import TopicPartition
from ottla.ports import read_file
from ottla.records.checksum import crc32c
from ottla.server.object_stores.blocking_store import BlockingStore
from ottla.tiered.layout import (
    INDEX,
    LEADER_EPOCHS,
    LOG,
    SNAPSHOT,
    TIME_INDEX,
    TXN_INDEX,
)
from ottla.tiered.manifest import Manifest, ObjectSummary, encode_manifest
from tests.support.log import PARTITION, TOPIC_ID

FILES = {
    LOG: LOG_FILE,
    INDEX: INDEX_FILE,
    TIME_INDEX: TIME_INDEX_FILE,
    TXN_INDEX: TXN_INDEX_FILE,
}


def upload(
    store: BlockingStore, log: Log, segments: Sequence[Segment] | None = None
) -> list[Manifest]:
    """Put segments into a store, all closed ones unless told; return their manifests."""
    chosen = list(log)[:-1] if segments is None else segments
    manifests = []
    for segment in chosen:
        manifest, contents = remote_segment(log, segment)
        for kind, content in contents.items():
            store.put(manifest.key(kind), content)
        store.put(manifest.key(), encode_manifest(manifest))
        manifests.append(manifest)
    return manifests


def remote_segment(
    log: Log, segment: Segment, topic: TopicPartition = PARTITION
) -> tuple[Manifest, dict[str, bytes]]:
    """Return the manifest of a closed segment, and the content of its other objects."""
    files = log.resources.files
    after = log.segments.end_of(segment)
    assert after is not None, "the active segment is not closed"
    contents = {
        kind: read_file(files, segment.path(suffix))
        for kind, suffix in FILES.items()
        if files.exists(segment.path(suffix))
    }
    contents[SNAPSHOT] = read_file(files, log.path(f"{after:020d}{SNAPSHOT_FILE}"))
    upto = [entry for entry in log.leader_epochs.entries if entry.start_offset < after]
    contents[LEADER_EPOCHS] = EpochCache(tuple(upto)).encode()
    before = [entry for entry in upto if entry.start_offset <= segment.base_offset]
    inside = [entry for entry in upto if entry.start_offset > segment.base_offset]
    epochs = [EpochEntry(before[-1].epoch, segment.base_offset), *inside] if before else inside
    manifest = Manifest(
        topic=topic.topic,
        topic_id=TOPIC_ID,
        partition=topic.partition,
        segment_id=crc32c(contents[LOG], after).to_bytes(16, "big"),
        start_offset=segment.base_offset,
        end_offset=after - 1,
        max_timestamp_ms=segment.largest_timestamp(),
        broker_id=1,
        event_timestamp_ms=1_700_000_000_000,
        leader_epochs=tuple(epochs),
        objects={kind: ObjectSummary(len(c), crc32c(c)) for kind, c in contents.items()},
    )
    return manifest, contents
