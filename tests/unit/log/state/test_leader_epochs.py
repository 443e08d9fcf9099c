"""Leader epochs: assignment, lookup, truncation at both ends, the file."""

from __future__ import annotations

import pytest

from ottla.log.state.leader_epochs import EpochCache, EpochEntry
from ottla.log.store.checkpoints import CorruptCheckpoint


def cache_of(*entries: tuple[int, int]) -> EpochCache:
    return EpochCache(tuple(EpochEntry(*entry) for entry in entries))


def test_epochs_begin_where_they_are_assigned_first() -> None:
    cache = EpochCache()
    for epoch, offset in ((2, 0), (2, 5), (3, 7)):
        cache.assign(epoch, offset)
    assert cache.entries == ((2, 0), (3, 7))
    assert cache.latest_epoch == 3


def test_an_assignment_removes_what_contradicts_it() -> None:
    cache = cache_of((1, 0), (2, 10), (4, 20))
    cache.assign(3, 15)
    assert cache.entries == ((1, 0), (2, 10), (3, 15))
    cache.assign(5, 10)
    assert cache.entries == ((1, 0), (5, 10))
    cache.assign(5, 4)
    assert cache.entries == ((1, 0), (5, 4))


@pytest.mark.parametrize(
    ("epoch", "expected"),
    [
        (-1, (-1, -1)),
        (0, (0, 5)),  # before all: the start of the first one after it
        (1, (1, 10)),
        (2, (1, 10)),  # not there: the one before it
        (3, (3, 20)),
        (5, (5, 33)),  # the latest ends with the log
        (6, (-1, -1)),
    ],
)
def test_end_offset_for_an_epoch(epoch: int, expected: tuple[int, int]) -> None:
    assert cache_of((1, 5), (3, 10), (5, 20)).end_offset_for(epoch, 33) == expected


def test_without_epochs_nothing_is_known() -> None:
    for epoch in (-2, -1, 0):
        assert EpochCache().end_offset_for(epoch, 10) == (-1, -1)
    assert EpochCache().epoch_for_offset(0) == -1


def test_epoch_for_an_offset() -> None:
    cache = cache_of((1, 5), (3, 10))
    assert [cache.epoch_for_offset(offset) for offset in (4, 5, 9, 10, 99)] == [-1, 1, 1, 3, 3]


def test_truncating_the_end() -> None:
    cache = cache_of((1, 0), (2, 10), (3, 20))
    cache.truncate_from_end(21)
    assert len(cache.entries) == 3
    assert not cache.changed
    cache.truncate_from_end(20)
    assert cache.entries == ((1, 0), (2, 10))
    cache.truncate_from_end(0)
    assert cache.entries == ()
    assert cache.latest_epoch == -1


def test_truncating_the_start_keeps_the_epoch_it_lies_in() -> None:
    cache = cache_of((1, 0), (2, 10), (3, 20))
    cache.truncate_from_start(15)
    assert cache.entries == ((2, 15), (3, 20))
    cache.changed = False
    cache.truncate_from_start(15)
    assert not cache.changed
    cache.truncate_from_start(20)
    assert cache.entries == ((3, 20),)


def test_a_start_before_the_first_epoch_changes_nothing() -> None:
    cache = cache_of((1, 5))
    cache.truncate_from_start(3)
    assert cache.entries == ((1, 5),)


def test_the_file_is_a_checkpoint_of_epochs_and_offsets() -> None:
    cache = cache_of((0, 0), (7, 1234))
    assert cache.encode() == b"0\n2\n0 0\n7 1234\n"
    assert EpochCache.decode(cache.encode()).entries == cache.entries
    assert EpochCache.decode(b"").entries == ()
    with pytest.raises(CorruptCheckpoint):
        EpochCache.decode(b"0\n1\nseven 1\n")
