"""Entries of a log, as they are and without what later ones replace."""

from __future__ import annotations

from ottla.coordinator.runtime.log_entries import TASK, Entry, compacted, entries_of, task_data
from ottla.ports import run_task
from ottla.records.batch import scan
from ottla.records.record import NewRecord, build_batch


def batch(offset: int, *records: tuple[bytes | None, bytes | None], producer: int = -1) -> bytes:
    new: list[NewRecord] = [(key, value, 0, ()) for key, value in records]
    return bytes(
        build_batch(new, base_offset=offset, producer_id=producer, is_transactional=producer >= 0)
    )


def marker(offset: int, producer: int) -> bytes:
    record: NewRecord = (b"\0\0\0\1", b"\0\0\0\0\0\0", 0, ())
    return bytes(
        build_batch(
            [record],
            base_offset=offset,
            producer_id=producer,
            is_transactional=True,
            is_control=True,
        )
    )


def both(*batches: bytes) -> tuple[list[Entry], list[Entry]]:
    """Return all entries, and what a helper process leaves of them."""
    data = b"".join(batches)
    plain = [entry for found in scan(data, 0, len(data)) for entry in entries_of(data, found)]
    _, left = compacted(run_task(TASK, task_data((b"k",), data)))
    return plain, list(left)


def test_only_the_last_entry_of_a_key_is_left() -> None:
    plain, left = both(
        batch(0, (b"k1", b"a"), (b"other", b"b"), (b"k2", b"c")),
        batch(3, (b"k1", None), (b"other", b"d"), (None, b"e")),
    )
    assert len(plain) == 6
    assert sorted(left) == [plain[1], plain[2], plain[3], plain[4], plain[5]]
    others = [entry for entry in left if entry[3] in (b"other", None)]
    assert others == [plain[1], plain[4], plain[5]]


def test_nothing_is_moved_past_a_transaction() -> None:
    plain, left = both(
        batch(0, (b"k1", b"a")),
        batch(1, (b"k1", b"b"), (b"k1", b"c"), producer=7),
        batch(3, (b"k1", b"d")),
        marker(4, 7),
        batch(5, (b"k1", b"e"), (b"k1", b"f")),
    )
    assert left == [*plain[:5], plain[6]]
    assert [entry[1] for entry in left] == [-1, 7, 7, -1, 7, -1]
    assert [entry[2] for entry in left] == [False, False, False, False, True, False]


def test_a_batch_that_is_cut_off_is_left_for_the_next_read() -> None:
    data = batch(0, (b"k", b"a")) + batch(1, (b"k", b"b"))[:-1]
    offset, left = compacted(run_task(TASK, task_data((b"k",), data)))
    assert (offset, len(list(left))) == (1, 1)
