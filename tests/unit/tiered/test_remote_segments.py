"""The state of a partition's remote segments, and lookups by leader epochs."""

from __future__ import annotations

from ottla.log.state.leader_epochs import EpochCache, EpochEntry
from ottla.tiered.metadata_records import (
    PartitionDelete,
    PartitionDeleteState,
    RemotePartition,
    SegmentMetadata,
    SegmentState,
    SegmentUpdate,
)
from ottla.tiered.remote_segments import RemoteSegments, valid_end

PARTITION = RemotePartition("orders", b"t" * 16, 0)
STARTED, FINISHED = SegmentState.COPY_STARTED, SegmentState.COPY_FINISHED
DELETING, DELETED = SegmentState.DELETE_STARTED, SegmentState.DELETE_FINISHED


def segment(name: str, start: int, end: int, *epochs: tuple[int, int]) -> SegmentMetadata:
    entries = tuple(EpochEntry(*each) for each in epochs) or (EpochEntry(0, start),)
    return SegmentMetadata(PARTITION, name.encode() * 16, start, end, 0, 1, 0, entries, 10)


def to(state: SegmentState, name: str) -> SegmentUpdate:
    return SegmentUpdate(PARTITION, name.encode() * 16, 1, 0, state)


def log_with(*epochs: tuple[int, int]) -> EpochCache:
    return EpochCache(tuple(EpochEntry(*each) for each in epochs))


def with_finished(*segments: SegmentMetadata) -> RemoteSegments:
    state = RemoteSegments()
    for each in segments:
        assert state.apply(each)
        assert state.apply(SegmentUpdate(PARTITION, each.segment_id, 1, 0, FINISHED))
    return state


def test_a_segment_is_readable_from_the_end_of_its_upload_to_its_deletion() -> None:
    state, epochs = RemoteSegments(), log_with((0, 0))
    state.apply(segment("a", 0, 9))
    assert state.find(5, epochs) is None
    assert state.apply(to(FINISHED, "a"))
    found = state.find(5, epochs)
    assert found is not None
    assert (found.segment_id, state.size) == (b"a" * 16, 10)
    assert state.find(10, epochs) is None
    assert state.apply(to(DELETING, "a"))
    assert (state.find(5, epochs), state.size) == (None, 0)
    assert state.in_state(DELETING)
    assert state.apply(to(DELETED, "a"))
    assert not state.segments


def test_changes_that_are_not_allowed_are_ignored() -> None:
    state = RemoteSegments()
    assert not state.apply(to(FINISHED, "a"))
    assert state.apply(segment("a", 0, 9))
    assert not state.apply(segment("a", 0, 9))
    assert not state.apply(to(DELETED, "a"))
    assert state.apply(to(DELETING, "a"))
    assert not state.apply(to(FINISHED, "a")), "another leader has given it up already"
    assert state.apply(to(DELETED, "a"))
    assert not state.apply(to(FINISHED, "a"))
    assert not state.apply(segment("b", 0, 9)._replace(state=FINISHED))


def test_segments_follow_each_other() -> None:
    state = with_finished(segment("a", 0, 9), segment("b", 10, 19, (0, 10), (2, 15)))
    epochs = log_with((0, 0), (2, 15))
    assert [each.start_offset for each in state.chain(3, epochs)] == [0, 10]
    assert state.highest_offset(epochs, 100) == 19
    assert state.lowest_offset(epochs) == 0
    assert RemoteSegments().highest_offset(epochs, 100) == -1
    assert RemoteSegments().lowest_offset(epochs) is None


def test_overlapping_segments_are_all_found() -> None:
    state = with_finished(segment("a", 0, 99), segment("b", 50, 69), segment("c", 70, 120))
    epochs = log_with((0, 0))
    for offset, start in ((10, 0), (60, 50), (69, 50), (80, 70), (110, 70)):
        found = state.find(offset, epochs)
        assert found is not None
        assert found.start_offset == start
    state.apply(to(DELETING, "c"))
    found = state.find(80, epochs)
    assert found is not None
    assert found.start_offset == 0, "the one before the nearest reaches further"


def test_segments_of_a_lost_leader_do_not_count() -> None:
    """Epoch 1 ended at 50 in this log, but its leader had copied more."""
    state = with_finished(segment("a", 0, 99, (0, 0), (1, 20)))
    epochs = log_with((0, 0), (1, 20), (2, 50))
    assert state.highest_offset(epochs, 200) == 49
    assert state.find(49, epochs) is not None
    assert state.find(50, epochs) is None
    found = state.find(10, epochs)
    assert found is not None
    assert valid_end(found, 10, epochs, 200) == 50
    assert valid_end(found, 10, log_with((0, 0), (1, 20)), 200) == 100
    assert valid_end(found, 10, log_with((0, 0), (3, 30)), 200) == 20
    assert valid_end(found, 30, log_with((1, 25)), 200) == 100
    assert state.highest_offset(log_with((5, 0)), 10) == -1


def test_the_deletion_of_a_partition_is_remembered() -> None:
    state = RemoteSegments()
    for step in PartitionDeleteState:
        assert state.apply(PartitionDelete(PARTITION, 1, 0, step))
        assert state.delete_state == step
