"""Copies one segment to the object store: its log, its indexes and state, then the manifest.

The objects are written at the same time, which is faster than one after the other with most stores.
The manifest comes last, so that a reader never sees a part of a segment. An upload that failed may
be repeated: it writes the same objects again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from ottla.ports import Background, Buffer, FileRange, ObjectStore, ObjectStoreError
from ottla.records.checksum import crc32c
from ottla.tiered.layout import KINDS, MANIFEST, object_key, partition_prefix
from ottla.tiered.manifest import Manifest, ObjectSummary, encode_manifest
from ottla.tiered.metadata_records import RemotePartition, SegmentMetadata

PIECE_BYTES: Final = 4 * 1024 * 1024
"""A file is read for its checksum in pieces of this size, so that others have their turn."""


def key_of(segment: SegmentMetadata, kind: str) -> str:
    """Return the key of an object of a segment."""
    return object_key(prefix_of(segment.partition), segment.start_offset, segment.segment_id, kind)


def prefix_of(partition: RemotePartition) -> str:
    """Return what the keys of a partition begin with."""
    return partition_prefix(partition.topic, partition.topic_id, partition.partition)


class SegmentUpload:
    """An upload. `done` gets None when all objects are stored, or why they are not."""

    def __init__(
        self,
        store: ObjectStore,
        background: Background,
        segment: SegmentMetadata,
        objects: dict[str, Buffer | FileRange],
        done: Callable[[OSError | None], None],
        is_wanted: Callable[[], bool] = lambda: True,
        also_replaces: tuple[bytes, ...] = (),
    ) -> None:
        """Begin the upload of these objects, by kind. Their content must not change.

        They are stored at the same time, and their checksums are computed meanwhile. The manifest
        follows, unless the upload is not wanted any more. It also tells that
        it replaces segments that nobody but a reader of manifests could still take for valid.
        """
        self._also_replaces = also_replaces
        self._is_wanted = is_wanted
        self._store = store
        self._background = background
        self._segment = segment
        self._objects = objects
        self._summaries: dict[str, ObjectSummary] = {}
        self._done = done
        self._error: OSError | None = None
        self._under_way = 2 * len(objects)
        """How many objects are still to be stored, and checksums to be computed."""
        if not is_wanted():
            done(None)
            return
        for kind, content in objects.items():
            store.put(key_of(segment, kind), content, self._ended)
            self._check(kind, content)

    def _ended(self, error: OSError | None) -> None:
        """Note that something has ended; with the last of all, store the manifest or give up."""
        self._error = self._error or error
        self._under_way -= 1
        if self._under_way:
            return
        if self._error is not None or not self._is_wanted():
            self._done(self._error)
        else:
            self._store.put(
                key_of(self._segment, MANIFEST), encode_manifest(self._manifest()), self._done
            )

    def _check(self, kind: str, content: Buffer | FileRange) -> None:
        if isinstance(content, FileRange):
            self._check_file(kind, content, 0, 0)
        else:
            self._checked(kind, ObjectSummary(len(content), crc32c(content)))

    def _checked(self, kind: str, summary: ObjectSummary) -> None:
        self._summaries[kind] = summary
        self._ended(None)

    def _check_file(self, kind: str, content: FileRange, position: int, crc: int) -> None:
        """Compute the checksum of a file, a piece at a time."""
        length = min(PIECE_BYTES, content.length - position)
        if not length:
            self._checked(kind, ObjectSummary(content.length, crc))
            return

        def read() -> int:
            piece = content.file.pread(length, content.position + position)
            if len(piece) != length:
                raise OSError(f"{content.file.path} is shorter than its log says")
            return crc32c(piece, crc)

        def done(result: int | OSError) -> None:
            if isinstance(result, OSError):
                self._ended(result)
            else:
                self._check_file(kind, content, position + length, result)

        self._background.submit(read, done)

    def _manifest(self) -> Manifest:
        segment = self._segment
        return Manifest(
            topic=segment.partition.topic,
            topic_id=segment.partition.topic_id,
            partition=segment.partition.partition,
            segment_id=segment.segment_id,
            start_offset=segment.start_offset,
            end_offset=segment.end_offset,
            max_timestamp_ms=segment.max_timestamp_ms,
            broker_id=segment.broker_id,
            event_timestamp_ms=segment.event_timestamp_ms,
            leader_epochs=segment.leader_epochs,
            objects={kind: self._summaries[kind] for kind in self._objects},
            replaces=(*segment.replaces, *self._also_replaces),
        )


def delete_objects(
    store: ObjectStore, segment: SegmentMetadata, done: Callable[[OSError | None], None]
) -> None:
    """Delete all objects of a segment, the manifest first; `done` gets why it failed, or None."""
    kinds = (MANIFEST, *(kind for kind in KINDS if kind != MANIFEST))
    delete_keys(store, [key_of(segment, kind) for kind in kinds], done)


def delete_keys(
    store: ObjectStore, keys: Iterable[str], done: Callable[[OSError | None], None]
) -> None:
    """Delete objects one after the other; `done` gets why it failed, or None."""
    left = iter(keys)

    def next_one(error: ObjectStoreError | None) -> None:
        key = None if error is not None else next(left, None)
        if key is None:
            done(error)
        else:
            store.delete(key, next_one)

    next_one(None)
