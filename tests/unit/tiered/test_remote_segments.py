"""The state of a partition's remote segments, and lookups by leader epochs."""

from __future__ import annotations

from itertools import pairwise

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


def starts_of(state: RemoteSegments, epochs: EpochCache, *offsets: int) -> list[int | None]:
    """Return where the segments begin from which these offsets are read."""
    found = [state.find(offset, epochs) for offset in offsets]
    return [None if each is None else each.start_offset for each in found]


def test_where_segments_overlap_the_one_that_was_readable_first_counts() -> None:
    state = with_finished(segment("a", 0, 99), segment("b", 50, 69), segment("c", 70, 120))
    epochs = log_with((0, 0))
    assert starts_of(state, epochs, 10, 60, 69, 80, 99, 100, 121) == [0, 0, 0, 0, 0, 70, None]
    assert [each.start_offset for each in state.chain(0, epochs)] == [0, 70]
    state.apply(to(DELETING, "a"))
    assert starts_of(state, epochs, 10, 60, 69, 80, 110) == [None, 50, 50, 70, 70]


def test_a_segment_around_others_is_read_where_they_are_not() -> None:
    state = with_finished(segment("b", 50, 69), segment("a", 0, 99))
    epochs = log_with((0, 0))
    assert starts_of(state, epochs, 10, 49, 50, 69, 70, 99) == [0, 0, 50, 50, 0, 0]
    parts = [(part[0].start_offset, *part[1:]) for part in state.parts(10, epochs, 1000)]
    assert parts == [(0, 10, 50), (50, 50, 70), (0, 70, 100)]


def rewritten(name: str, start: int, end: int, *replaces: str) -> SegmentMetadata:
    ids = tuple(each.encode() * 16 for each in replaces)
    return segment(name, start, end)._replace(replaces=ids, clean_upto=500, size=7)


def test_a_rewritten_segment_takes_the_place_of_others_in_one_step() -> None:
    state = with_finished(segment("a", 0, 9), segment("b", 10, 19), segment("c", 20, 29))
    epochs = log_with((0, 0))
    assert state.apply(rewritten("n", 0, 19, "a", "b"))
    assert [each.end_offset for each in state.chain(0, epochs)] == [9, 19, 29]
    finished = SegmentUpdate(PARTITION, b"n" * 16, 1, 777, FINISHED)
    assert state.apply(finished)
    assert [each.end_offset for each in state.chain(0, epochs)] == [19, 29]
    assert (state.size, state.highest_offset(epochs, 100)) == (17, 29)
    assert state.replaced == {b"a" * 16: 777, b"b" * 16: 777}
    assert state.apply(to(DELETING, "a"))
    assert state.apply(to(DELETED, "a"))
    assert (state.size, list(state.replaced)) == (17, [b"b" * 16])
    assert [each.end_offset for each in state.chain(0, epochs)] == [19, 29]


def test_of_two_rewrites_of_a_segment_the_first_one_counts() -> None:
    state = with_finished(segment("a", 0, 9), segment("b", 10, 19))
    epochs = log_with((0, 0))
    assert state.apply(rewritten("n", 0, 9, "a"))
    assert state.apply(rewritten("m", 0, 19, "a", "b"))
    assert state.apply(to(FINISHED, "n"))
    assert not state.apply(to(FINISHED, "m"))
    assert [each.segment_id[:1] for each in state.chain(0, epochs)] == [b"n", b"b"]
    assert state.segments[b"m" * 16].state == STARTED, "its leader, or the next one, deletes it"


def test_a_segment_that_stays_as_it_is_becomes_clean_up_to_a_later_offset() -> None:
    state = with_finished(segment("a", 0, 9), segment("b", 10, 19))
    epochs = log_with((0, 0))

    def cleaned(name: str, clean_upto: int) -> SegmentUpdate:
        return to(FINISHED, name)._replace(clean_upto=clean_upto)

    assert not state.apply(to(FINISHED, "a")), "it says nothing new"
    assert state.apply(cleaned("a", 30))
    assert not state.apply(cleaned("a", 20)), "it never becomes less"
    assert [each.clean_upto for each in state.chain(0, epochs)] == [30, -1]
    assert state.size == 20
    assert state.apply(rewritten("n", 0, 9, "a"))
    assert not state.apply(cleaned("c", 40))
    assert state.apply(to(FINISHED, "n"))
    assert not state.apply(cleaned("a", 40)), "it was replaced"
    assert state.apply(to(DELETING, "b"))
    assert not state.apply(cleaned("b", 40))
    assert [each.segment_id[:1] for each in state.chain(0, epochs)] == [b"n"]


def test_a_gap_between_epochs_of_a_compacted_log_is_skipped() -> None:
    """The leader that copied had epoch 1 from 100 on and an epoch 2; others have it otherwise."""
    copied = segment("a", 0, 199, (0, 0), (1, 100), (2, 150))
    state = with_finished(copied, segment("b", 200, 299, (2, 150)))
    for epochs in (
        log_with((0, 0), (1, 105), (2, 150)),
        log_with((0, 0), (1, 95), (2, 150)),
        log_with((0, 0), (2, 150)),
        log_with((0, 0), (1, 100), (2, 155)),
        log_with((0, 0), (1, 100), (2, 140)),
    ):
        parts = list(state.parts(0, epochs, 300, has_gaps=True))
        assert {part[0].segment_id[:1] for part in parts} == {b"a", b"b"}
        assert (parts[0][1], parts[-1][2]) == (0, 300)
        assert all(one[2] == two[1] for one, two in pairwise(parts)), "they follow each other"
        for offset in range(300):
            if state.find(offset, epochs) is None:
                following = state.after_gap(offset, epochs)
                assert following is not None
                assert offset < following < 160
                assert state.find(following, epochs) is not None
        chain = state.chain(102, epochs, has_gaps=True)
        assert [each.segment_id[:1] for each in chain] == [b"a", b"b"]


def test_a_missing_segment_is_no_gap() -> None:
    state = with_finished(segment("a", 0, 99, (0, 0)), segment("c", 110, 199, (1, 110)))
    epochs = log_with((0, 0), (1, 110))
    assert state.after_gap(100, epochs) is None
    assert [part[2] for part in state.parts(0, epochs, 200, has_gaps=True)] == [100]
    assert state.after_gap(500, epochs) is None
    assert RemoteSegments().after_gap(0, epochs) is None


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
