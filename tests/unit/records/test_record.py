from __future__ import annotations

import tracemalloc

import pytest

from ottla.records.batch import (
    ATTRIBUTES_OFFSET,
    HEADER_SIZE,
    LAST_OFFSET_DELTA_OFFSET,
    MAGIC_OFFSET,
    RECORD_COUNT_OFFSET,
    CorruptBatch,
    crc_of,
    parse_header,
    seal,
)
from ottla.records.compression import CODECS
from ottla.records.record import NewRecord, Record, build_batch, records_of
from tests.support.records import null_keys

RECORDS: list[NewRecord] = [
    (b"k1", b"v1", 1000, [("h", b"1"), ("h", None), ("", b"")]),
    (None, b"", 900, []),
    (b"", None, 5_000_000_000, [("ключ", b"\xff")]),
    (b"k" * 200, b"v" * 20_000, 1000, []),
]


def _raw_batch(payload: bytes, count: int, *, last_offset_delta: int | None = None) -> bytearray:
    """Return a sealed batch around hand-made record bytes."""
    batch = build_batch([(b"k", b"v", 1000, ())])
    batch[HEADER_SIZE:] = payload
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    delta = count - 1 if last_offset_delta is None else last_offset_delta
    batch[LAST_OFFSET_DELTA_OFFSET : LAST_OFFSET_DELTA_OFFSET + 4] = delta.to_bytes(
        4, "big", signed=True
    )
    batch[RECORD_COUNT_OFFSET:HEADER_SIZE] = count.to_bytes(4, "big", signed=True)
    seal(batch, 0, len(batch))
    return batch


@pytest.mark.parametrize("codec", CODECS.values())
def test_round_trip(codec: int) -> None:
    batch = build_batch(RECORDS, base_offset=70, codec=codec)
    assert parse_header(batch, 0).crc == crc_of(memoryview(batch), 0, len(batch))
    assert records_of(batch) == [
        Record(70 + n, timestamp, key, value, tuple(headers))
        for n, (key, value, timestamp, headers) in enumerate(RECORDS)
    ]


def test_bytes_of_a_record() -> None:
    batch = build_batch([(b"K", b"VV", 5, [("h", None)]), (None, None, 3, ())])
    assert batch[HEADER_SIZE:] == bytes.fromhex("18 00 00 00 02 4b 04 5656 02 02 68 01") + (
        bytes.fromhex("0c 00 03 02 01 01 00")
    )


def test_log_append_time_stands_for_every_record() -> None:
    batch = build_batch(RECORDS, timestamp_type=1)
    assert {record.timestamp for record in records_of(batch)} == {5_000_000_000}


def test_header_keys_that_are_not_utf8_survive() -> None:
    batch = _raw_batch(bytes.fromhex("12 00 00 00 01 01 02 04 ff fe"), 1)
    (record,) = records_of(_raw_batch(bytes.fromhex("14 00 00 00 01 01 02 04 fffe 01"), 1))
    rebuilt = build_batch([(None, None, 1000, record.headers)])
    assert rebuilt[HEADER_SIZE:] == bytes.fromhex("14 00 00 00 01 01 02 04 fffe 01")
    with pytest.raises(CorruptBatch):
        records_of(batch)


def test_compacted_batches_have_gaps() -> None:
    two = build_batch([(b"a", b"1", 0, ()), (b"b", b"2", 0, ())], base_offset=10)
    payload = bytearray(two[HEADER_SIZE:])
    payload[3] = 6  # offset delta 3
    payload[len(payload) // 2 + 3] = 16  # offset delta 8
    batch = _raw_batch(bytes(payload), 2, last_offset_delta=9)
    assert [record.offset for record in records_of(batch)] == [3, 8]
    assert parse_header(batch, 0).next_offset == 10


@pytest.mark.parametrize("attributes", [0, 4])
def test_a_batch_emptied_by_compaction(attributes: int) -> None:
    batch = _raw_batch(b"", 0, last_offset_delta=9)
    batch[ATTRIBUTES_OFFSET + 1] = attributes
    assert records_of(batch) == []
    assert not null_keys(batch, 0, len(batch))


def test_bytes_after_the_batch_are_not_looked_at() -> None:
    batch = build_batch(RECORDS)
    assert records_of(batch + b"more") == records_of(batch)


def test_a_batch_needs_a_record() -> None:
    with pytest.raises(ValueError, match="at least one"):
        build_batch([])


WHOLE = bytes.fromhex("10 00 00 00 02 4b 02 56 00")
DAMAGED = {
    "fewer records than counted": (WHOLE, 2),
    "more records than counted": (WHOLE * 2, 1),
    "negative count": (WHOLE, -1),
    "huge count": (WHOLE, 2**31 - 1),
    "record longer than the batch": (b"\x12" + WHOLE[1:], 1),
    "record shorter than its fields": (b"\x0e" + WHOLE[1:], 1),
    "negative record length": (b"\x11" + WHOLE[1:], 1),
    "huge record length": (b"\xfe\xff\xff\xff\x0f" + WHOLE[1:], 1),
    "number of eleven bytes": (WHOLE[:1] + b"\0" + b"\x80" * 10 + b"\x01" + WHOLE[3:], 1),
    "number over 64 bits": (
        b"\x22\x00" + b"\xff" * 9 + b"\x7f" + bytes.fromhex("00 02 4b 02 56 00"), 1,
    ),
    "key longer than the record": (bytes.fromhex("10 00 00 00 0a 4b 02 56 00"), 1),
    "key of length -2": (bytes.fromhex("10 00 00 00 03 4b 02 56 00"), 1),
    "value longer than the record": (bytes.fromhex("10 00 00 00 02 4b 06 56 00"), 1),
    "negative header count": (bytes.fromhex("10 00 00 00 02 4b 02 56 01"), 1),
    "more headers than bytes": (bytes.fromhex("10 00 00 00 02 4b 02 56 7e"), 1),
    "null header key": (bytes.fromhex("14 00 00 00 02 4b 02 56 02 01 01"), 1),
    "offset delta not rising": (WHOLE * 2, 2),
    "offset delta past the last": (bytes.fromhex("10 00 00 04 02 4b 02 56 00"), 1),
    "negative offset delta": (bytes.fromhex("10 00 00 01 02 4b 02 56 00"), 1),
    "timestamp over 64 bits": (
        b"\x22\x00" + b"\xfe" + b"\xff" * 8 + b"\x01" + bytes.fromhex("00 02 4b 02 56 00"), 1,
    ),
    "nothing but length bytes": (b"\x80" * 30, 1),
}  # fmt: skip


@pytest.mark.parametrize("case", DAMAGED)
def test_damaged_records(case: str) -> None:
    payload, count = DAMAGED[case]
    with pytest.raises(CorruptBatch):
        records_of(_raw_batch(payload, count))


def test_the_undamaged_form_of_those_records_reads() -> None:
    assert records_of(_raw_batch(WHOLE, 1)) == [Record(0, 1000, b"K", b"V", ())]


@pytest.mark.parametrize("size", [0, 20, HEADER_SIZE - 1, HEADER_SIZE + 3])
def test_a_batch_cut_short(size: int) -> None:
    with pytest.raises(CorruptBatch):
        records_of(build_batch(RECORDS)[:size])


def test_another_magic() -> None:
    batch = build_batch(RECORDS)
    batch[MAGIC_OFFSET] = 1
    with pytest.raises(CorruptBatch, match="magic 1"):
        records_of(batch)


def test_counts_are_checked_before_anything_is_made() -> None:
    hostile = _raw_batch(bytes.fromhex("10 00 00 00 02 4b 02 56 00"), 2**31 - 1)
    tracemalloc.start()
    try:
        with pytest.raises(CorruptBatch):
            records_of(hostile)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 64 * 1024


@pytest.mark.parametrize("codec", CODECS.values())
def test_null_keys(codec: int) -> None:
    keyed: list[NewRecord] = [
        (b"k" * n, b"v" * 99, 10**9 * n, [("h", b"x" * 70)]) for n in range(200)
    ]
    batch = build_batch(keyed, codec=codec)
    buffer = b"before" + batch + b"after"
    assert not null_keys(buffer, 6, 6 + len(batch))
    for position in (0, 100, 199):
        records = list(keyed)
        records[position] = (None, b"v", 1, ())
        batch = build_batch(records, codec=codec)
        assert null_keys(batch, 0, len(batch)) == [position]


def test_null_keys_of_large_records() -> None:
    batch = build_batch([(b"k", b"v" * 100_000, 0, ()), (None, b"v" * 100_000, 0, ())])
    assert null_keys(batch, 0, len(batch)) == [1]


@pytest.mark.parametrize(
    "case",
    ["fewer records than counted", "more records than counted", "negative record length",
     "huge record length", "huge count", "nothing but length bytes"],
)  # fmt: skip
def test_null_keys_of_damaged_records(case: str) -> None:
    payload, count = DAMAGED[case]
    batch = b"12345" + _raw_batch(payload, count)
    with pytest.raises(CorruptBatch) as error:
        null_keys(batch, 5, len(batch))
    assert error.value.position == 5
