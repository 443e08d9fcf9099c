"""Uploads and deletions of a segment's objects."""

from __future__ import annotations

from random import Random

import pytest

from ottla.log.state.leader_epochs import EpochEntry
from ottla.memory_files import MemoryFiles
from ottla.ports import Buffer, FileRange
from ottla.records.checksum import crc32c
from ottla.sim.object_store import SimObjectStore, StoreFaults
from ottla.testing.fakes import QueuedBackground
from ottla.tiered.layout import INDEX, LEADER_EPOCHS, LOG, MANIFEST, TIME_INDEX
from ottla.tiered.manifest import decode_manifest
from ottla.tiered.metadata_records import RemotePartition, SegmentMetadata
from ottla.tiered.segment_upload import PIECE_BYTES, SegmentUpload, delete_objects, key_of

CONTENT = bytes(range(256)) * (PIECE_BYTES // 200)
SEGMENT = SegmentMetadata(
    RemotePartition("t", b"t" * 16, 3), b"s" * 16, 5, 9, 17, 1, 18, (EpochEntry(2, 5),),
    len(CONTENT),
)  # fmt: skip


class Case:
    def __init__(self) -> None:
        self.background = QueuedBackground()
        self.store = SimObjectStore(self.background, Random(1))
        self.results: list[OSError | None] = []
        files = MemoryFiles()
        files.make_dirs("/d")
        self.file = files.open("/d/log", create=True, writable=True)
        self.file.pwritev([CONTENT], 0)

    def upload(self, *, wanted: bool = True, length: int = len(CONTENT)) -> None:
        objects: dict[str, Buffer | FileRange] = {
            LOG: FileRange(self.file, 0, length),
            INDEX: b"",
            TIME_INDEX: b"times",
            LEADER_EPOCHS: b"epochs",
        }
        SegmentUpload(
            self.store, self.background, SEGMENT, objects, self.results.append, lambda: wanted
        )
        self.background.run()


@pytest.fixture
def case() -> Case:
    return Case()


def test_all_objects_are_stored_and_the_manifest_describes_them(case: Case) -> None:
    case.upload()
    assert case.results == [None]
    assert case.store.objects[key_of(SEGMENT, LOG)] == CONTENT
    manifest = decode_manifest(case.store.objects[key_of(SEGMENT, MANIFEST)])
    assert manifest.key() == key_of(SEGMENT, MANIFEST)
    log = manifest.objects[LOG]
    assert (log.size, log.crc32c) == (len(CONTENT), crc32c(CONTENT))
    assert manifest.objects[INDEX].size == 0
    assert (manifest.start_offset, manifest.end_offset, manifest.max_timestamp_ms) == (5, 9, 17)


def test_a_failure_leaves_no_manifest_and_may_be_repeated(case: Case) -> None:
    case.store.faults = StoreFaults(unavailable=1.0)
    case.upload()
    assert isinstance(case.results[0], OSError)
    assert case.store.objects == {}
    case.store.faults = StoreFaults()
    case.upload()
    assert case.results[1:] == [None]


def test_a_file_that_is_too_short_is_an_error(case: Case) -> None:
    case.upload(length=len(CONTENT) + 1)
    assert "shorter" in str(case.results[0])
    assert len(case.results) == 1
    assert key_of(SEGMENT, MANIFEST) not in case.store.objects


def test_an_upload_that_is_not_wanted_does_not_begin(case: Case) -> None:
    case.upload(wanted=False)
    assert case.results == [None]
    assert case.store.objects == {}


def test_an_upload_that_is_not_wanted_any_more_leaves_no_manifest(case: Case) -> None:
    answers = [True]
    SegmentUpload(
        case.store,
        case.background,
        SEGMENT,
        {LOG: FileRange(case.file, 0, len(CONTENT)), INDEX: b""},
        case.results.append,
        lambda: bool(answers and answers.pop()),
    )
    case.background.run()
    assert case.results == [None]
    assert set(case.store.objects) == {key_of(SEGMENT, LOG), key_of(SEGMENT, INDEX)}


def test_an_upload_ends_when_all_of_its_objects_have(case: Case) -> None:
    """Another attempt must not begin while an object of this one is still being written."""
    case.store.faults = StoreFaults(unavailable=1.0)
    SegmentUpload(
        case.store,
        case.background,
        SEGMENT,
        {LOG: FileRange(case.file, 0, len(CONTENT)), INDEX: b"", TIME_INDEX: b"times"},
        case.results.append,
    )
    while len(case.background.waiting) > 1:
        case.background.waiting.pop(0)()
        assert case.results == []
    case.background.run()
    assert len(case.results) == 1
    assert isinstance(case.results[0], OSError)


def test_the_manifest_is_deleted_first(case: Case) -> None:
    case.upload()
    delete_objects(case.store, SEGMENT, case.results.append)
    case.background.waiting.pop(0)()
    assert key_of(SEGMENT, MANIFEST) not in case.store.objects
    assert key_of(SEGMENT, LOG) in case.store.objects
    case.background.run()
    assert (case.store.objects, case.results) == ({}, [None, None])
    case.store.faults = StoreFaults(unavailable=1.0)
    delete_objects(case.store, SEGMENT, case.results.append)
    case.background.run()
    assert isinstance(case.results[-1], OSError)
