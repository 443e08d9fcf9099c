"""The two maps of keys select the same records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.log.cleaner import cleaning_task
from ottla.log.cleaner.array_key_offsets import ALL_STAY, NONE_STAYS, ArrayKeyOffsets, Selected
from ottla.log.cleaner.array_session import ArraySession
from ottla.log.cleaner.cleaning_task import (
    ARRAYS_FROM_BYTES,
    BUSY_FROM_BYTES,
    SMALL_BYTES,
    new_session,
)
from ottla.log.cleaner.key_hash import KeyHash
from ottla.log.cleaner.key_offsets import BatchRecords, KeyOffsets, Selection
from ottla.log.cleaner.plain_session import PlainSession
from ottla.log.cleaner.record_arrays import PADDING, RecordGroup
from ottla.records.batch import HEADER_SIZE, CorruptBatch
from ottla.records.record import NewRecord, build_batch

np = pytest.importorskip("numpy")


class Arrays:
    """The map of arrays, with the methods of the plain one."""

    def __init__(self, memory_bytes: int, load_factor: float, seed: bytes) -> None:
        self.map = ArrayKeyOffsets(memory_bytes, load_factor, seed)

    def __len__(self) -> int:
        return len(self.map)

    @property
    def utilization(self) -> float:
        return self.map.utilization

    def add_batches(self, batches: Sequence[BatchRecords], first_offset: int) -> int:
        return self.map.add(group_of(batches), first_offset)

    def select_batches(
        self, batches: Sequence[BatchRecords], latest_offset: int
    ) -> list[Selection]:
        group = group_of(batches)
        return selections(group, self.map.select(group, latest_offset))


def group_of(batches: Sequence[BatchRecords]) -> RecordGroup:
    """Return the records of batches in one buffer."""
    data, starts = bytearray(), []
    for batch in batches:
        starts.append(len(data) + 3)
        data += b"..." + batch.data[batch.start : batch.end]
    ends = [start + batch.end - batch.start for start, batch in zip(starts, batches, strict=True)]
    counts = np.array([batch.record_count for batch in batches])
    bases = np.array([batch.base_offset for batch in batches])
    keeps = np.array([batch.keep_tombstones for batch in batches])
    return RecordGroup(
        data + PADDING, np.array(starts), np.array(ends), counts, bases, bases + counts - 1, keeps
    )


def selections(group: RecordGroup, selected: Selected) -> list[Selection]:
    found = []
    for number, count in enumerate(group.counts.tolist()):
        runs = range(selected.first_runs[number], selected.first_runs[number + 1])
        parts = [group.data[selected.run_starts[n] : selected.run_ends[n]] for n in runs]
        kept = selected.kept[number]
        found.append(
            Selection(
                kept,
                selected.have_tombstones[number],
                selected.max_timestamp_deltas[number],
                None if kept == count else b"".join(parts),
            )
        )
    return found


Map: TypeAlias = KeyOffsets | Arrays
KEYS = st.one_of(
    st.binary(max_size=3),
    st.binary(min_size=14, max_size=18),
    st.sampled_from([b"l" * 255, b"l" * 256, b"l" * 257, b"l" * 256 + b"m", b"n" * 3000]),
    st.none(),
)
RECORDS = st.lists(
    st.tuples(
        KEYS,
        st.one_of(st.none(), st.binary(max_size=150)),
        st.integers(1_700_000_000_000 - 10**7, 1_700_000_000_000 + 10**7),
        st.just(()) | st.just((("h", b"1"), ("h", None))),
    ),
    min_size=1,
    max_size=30,
)
BATCHES = st.lists(RECORDS, min_size=1, max_size=6)


def both(memory_keys: int = 1000) -> list[Map]:
    return [
        KeyOffsets(208 * memory_keys, 1.0),
        Arrays(24 * (memory_keys + 1), 1.0, b"a secret of 16 b"),
    ]


def packed(records: list[NewRecord], base_offset: int, *, keep: bool = True) -> BatchRecords:
    batch = build_batch(records)
    return BatchRecords(batch, HEADER_SIZE, len(batch), base_offset, len(records), keep)


def with_keys(*keys: bytes, base_offset: int = 0) -> BatchRecords:
    return packed([(key, b"", 0, ()) for key in keys], base_offset)


def check_both(batches: list[BatchRecords], first: int, latest: int) -> list[Selection]:
    results = []
    for offsets in both():
        assert offsets.add_batches(batches, first) == len(batches)
        results.append((len(offsets), offsets.select_batches(batches, latest)))
    assert results[0] == results[1]
    return results[0][1]


@given(BATCHES, st.integers(0, 90), st.integers(0, 90), st.booleans(), st.integers(0, 30))
@settings(max_examples=100, deadline=None)
def test_both_select_the_same(groups, first, latest, keep_tombstones, copies) -> None:  # type: ignore[no-untyped-def]
    # With many batches they are walked together, with few one by one.
    batches, offset = [], 5
    for number, records in enumerate(groups + groups[:1] * copies):
        batches.append(packed(records, offset, keep=keep_tombstones or bool(number % 2)))
        offset += len(records)
    check_both(batches, first, latest)


@given(BATCHES, st.integers(0, 90), st.booleans(), st.integers(0, 30))
@settings(max_examples=100, deadline=None)
def test_marks_select_the_same(groups, first, keep_tombstones, copies) -> None:  # type: ignore[no-untyped-def]
    batches, offset = [], 5
    for number, records in enumerate(groups + groups[:1] * copies):
        batches.append(packed(records, offset, keep=keep_tombstones or bool(number % 2)))
        offset += len(records)
    _, arrays = both()
    assert isinstance(arrays, Arrays)
    arrays.add_batches(batches, first)
    group = group_of(batches)
    firsts, lasts = group.base_offsets, group.last_offsets
    marked = np.flatnonzero(arrays.map.are_marked(firsts, lasts, group.counts, offset))
    if not len(marked):
        return
    group = group_of([batches[number] for number in marked])
    by_marks = arrays.map.select_marked(group)
    by_keys = arrays.map.select(group, offset)
    assert all(map(np.array_equal, by_marks, by_keys))
    verdicts = arrays.map.verdicts(firsts[marked], lasts[marked]).tolist()
    for kept, count, has_tombstones, verdict in zip(
        by_marks.kept, group.counts.tolist(), by_marks.have_tombstones, verdicts, strict=True
    ):
        if verdict == NONE_STAYS:
            assert kept == 0
        elif verdict == ALL_STAY:
            assert (kept, has_tombstones) == (count, False)
        else:
            assert kept < count or has_tombstones


def test_there_are_no_marks_for_batches_with_gaps_or_after_the_first_pass() -> None:
    _, arrays = both()
    assert isinstance(arrays, Arrays)
    arrays.add_batches([with_keys(b"a", b"b", base_offset=10)], 10)

    def is_marked(first: int, last: int, count: int, latest: int) -> bool:
        offsets = np.array([first]), np.array([last])
        return bool(arrays.map.are_marked(*offsets, np.array([count]), latest)[0])

    assert is_marked(10, 11, 2, 11)
    assert not is_marked(10, 12, 2, 12)
    assert not is_marked(9, 11, 3, 11)
    assert not is_marked(10, 11, 2, 10)
    odd = group_of([with_keys(b"a", b"b", base_offset=12)])
    data = bytearray(odd.data)
    data[data.index(b"b") - 2] = 8  # the offset delta of the second record
    arrays.map.add(odd._replace(data=data), 10)
    assert not is_marked(10, 11, 2, 11), "records have other offsets than the headers say"


@pytest.mark.parametrize("sizes", [(5, 5, 5), (4, 6, 5), (5, 5, 200), (1, 9, 5, 5)])
def test_records_of_one_size_and_of_others_with_the_same_sum(sizes: tuple[int, ...]) -> None:
    batches = [
        packed([(b"k%d" % n, b"v" * size, 0, ()) for n, size in enumerate(sizes)], 10 * number)
        for number in range(3)
    ]
    found = check_both(batches, 0, 100)
    assert [selection.kept for selection in found] == [0, 0, len(sizes)]


def test_many_batches_of_different_lengths() -> None:
    batches, offset = [], 0
    for number in range(90):
        count = (number * 7) % 40 + 1
        keys = [b"%d" % ((number + n * n) % 97) for n in range(count)]
        values = [None if n % 5 == 0 else b"v" * (n * number % 300) for n in range(count)]
        batches.append(packed([(k, v, 0, ()) for k, v in zip(keys, values, strict=True)], offset))
        offset += count
    selected = check_both(batches, 0, offset)
    assert sum(each.kept for each in selected) == 97


@given(BATCHES, st.integers(0, 10**6), st.integers(0, 255), st.integers(0, 30))
@settings(max_examples=100, deadline=None)
def test_both_survive_damage(groups, at, byte, copies) -> None:  # type: ignore[no-untyped-def]
    batches = [packed(records, 0) for records in groups + groups[:1] * copies]
    data = bytearray(batches[0].data)
    data[HEADER_SIZE + at % (len(data) - HEADER_SIZE)] = byte
    batches[0] = batches[0]._replace(data=data)
    for offsets in both():
        try:
            offsets.add_batches(batches, 0)
            offsets.select_batches(batches, 10**9)
        except (CorruptBatch, IndexError):
            pass


@pytest.mark.parametrize("number", [0, 1])
def test_a_full_map_takes_known_keys_only(number: int) -> None:
    offsets = both(2)[number]
    one, two, three = (with_keys(*[b"abc"[n : n + 1] for n in range(count)]) for count in (1, 2, 3))
    assert offsets.add_batches([one, three, one], 0) == 1
    assert offsets.add_batches([two, two], 0) == 2
    assert len(offsets) == 2
    assert offsets.utilization == 1.0
    assert offsets.add_batches([with_keys(b"new")], 0) == 0


def test_hashes_differ_by_secret_length_and_content() -> None:
    keys = [b"", b"\0", b"\0" * 8, b"\0" * 9, b"a", b"b", b"a" * 256, b"a" * 257, b"a" * 255 + b"b"]
    data = b"".join(keys) + PADDING
    lengths = np.array([len(key) for key in keys])
    starts = np.cumsum(lengths) - lengths
    seen = set()
    for secret in (b"one", b"two"):
        high, low = KeyHash(secret).of(data, starts, lengths)
        again = KeyHash(secret).of(data[::1], starts, lengths)
        assert (high == again[0]).all()
        assert (low == again[1]).all()
        seen |= set(zip(high.tolist(), low.tolist(), strict=True))
    assert len(seen) == 2 * len(keys)


def test_the_hash_is_multilinear() -> None:
    """Compute one hash by its definition."""
    from hashlib import shake_128

    key, seed = b"twelve bytes", b"seed"
    secret = np.frombuffer(shake_128(seed).digest(8 * 4 * 66), "<u8").reshape(4, 66).tolist()
    words = [len(key), *(int.from_bytes(key[n : n + 4], "little") for n in range(0, 12, 4))]
    parts = [
        ((part[0] + sum(w * s for w, s in zip(words, part[1:], strict=False))) % 2**64) >> 32
        for part in secret
    ]
    high, low = KeyHash(seed).of(key + PADDING, np.array([0]), np.array([len(key)]))
    assert int(high[0]) == parts[0] << 32 | parts[1]
    assert int(low[0]) == parts[2] << 32 | parts[3]


SESSION_FIELDS = {
    "map_bytes": 2400,
    "load_factor": 0.9,
    "seed": "00",
    "first_dirty_offset": 0,
    "upper_bound": 10,
    "now_ms": 0,
    "delete_retention_ms": 0,
    "keep_deletions_from": 10,
    "keep_epoch_starts": False,
    "index_interval_bytes": 4096,
}


def test_large_logs_are_cleaned_with_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cleaning_task._Work, "begun_bytes", 0)
    large = new_session({**SESSION_FIELDS, "bytes": ARRAYS_FROM_BYTES}, b"", b"")
    small = new_session({**SESSION_FIELDS, "bytes": ARRAYS_FROM_BYTES - 1}, b"", b"")
    assert isinstance(large, ArraySession)
    assert not isinstance(small, ArraySession)


def test_a_busy_process_cleans_small_logs_with_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cleaning_task._Work, "begun_bytes", 0)
    kinds = [
        type(new_session({**SESSION_FIELDS, "bytes": SMALL_BYTES}, b"", b"")) for _ in range(400)
    ]
    assert kinds == sorted(kinds, key=lambda kind: kind is ArraySession)
    assert kinds.count(PlainSession) == BUSY_FROM_BYTES // SMALL_BYTES - 1
    tiny = new_session({**SESSION_FIELDS, "bytes": SMALL_BYTES - 1}, b"", b"")
    assert isinstance(tiny, PlainSession)


def test_the_table_grows_with_its_keys() -> None:
    plain, arrays = both(300_000)
    count = 5000
    for number in range(20):
        keys = [b"key-%d" % (number * count + n) for n in range(count)]
        batch = with_keys(*keys, base_offset=number * count)
        assert plain.add_batches([batch], 0) == 1
        assert arrays.add_batches([batch], 0) == 1
    assert len(arrays) == len(plain) == 20 * count
    for offset in (0, 99, 100):
        batch = with_keys(b"key-99", base_offset=offset)
        for each in (plain, arrays):
            assert each.select_batches([batch], 10**9)[0].kept == (offset >= 99)
