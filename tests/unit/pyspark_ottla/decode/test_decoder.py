"""The decoder: compared with `ottla.records`, and with truncated, damaged and hostile bytes."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.records.batch import (
    ATTRIBUTES_OFFSET,
    HEADER_SIZE,
    LAST_OFFSET_DELTA_OFFSET,
    LENGTH_OFFSET,
    LOG_APPEND_TIME,
    MAGIC_OFFSET,
    RECORD_COUNT_OFFSET,
    scan,
    seal,
)
from ottla.records.compression import CODECS, ZSTD
from ottla.records.control import ControlType, build_marker
from ottla.records.record import NewRecord, build_batch, records_of
from pyspark_ottla.decode.aborted_transactions import AbortedFilter, AbortedTransaction
from pyspark_ottla.decode.column_arrays import BATCH_BYTES, BATCH_HEADERS, BATCH_ROWS, arrow_schema
from pyspark_ottla.decode.decoder import Decoder, FetchedBatches
from pyspark_ottla.errors import DamagedRecords

ALL = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FAR = 1 << 62


def decode(
    *data: bytes | bytearray,
    low: int = 0,
    high: int = FAR,
    columns: Sequence[str] = ALL,
    aborted: Sequence[AbortedTransaction] = (),
    check_crcs: bool = True,
) -> list[pa.RecordBatch]:
    decoder = Decoder(columns, check_crcs=check_crcs)
    made: list[pa.RecordBatch] = []
    for partition, piece in enumerate(data):
        view = memoryview(bytearray(piece))
        made += decoder.decode(
            FetchedBatches("t", partition, view, low, high, AbortedFilter(aborted))
        )
    last = decoder.finish()
    made += [last] if last is not None else []
    for batch in made:
        batch.validate(full=True)
        assert batch.schema == arrow_schema(columns)
    return made


def rows(batches: Iterable[pa.RecordBatch]) -> list[dict[str, object]]:
    return [row for batch in batches for row in batch.to_pylist()]


def expected(data: bytes, low: int = 0, high: int = FAR) -> list[dict[str, object]]:
    """Return the same records, decoded by ottla.records."""
    return [
        {
            "key": record.key,
            "value": record.value,
            "topic": "t",
            "partition": 0,
            "offset": record.offset,
            "timestamp": EPOCH + timedelta(milliseconds=record.timestamp),
            "timestampType": batch.timestamp_type,
            "headers": [{"key": key, "value": value} for key, value in record.headers] or None,
        }
        for batch in scan(data, 0, len(data))
        for record in records_of(data[batch.position : batch.end])
        if low <= record.offset < high
    ]


def numbered(count: int, base: int = 0, **options: int) -> bytearray:
    records: list[NewRecord] = [
        (b"k%d" % n, b"value %d" % n, 1_700_000_000_000 + n, ()) for n in range(count)
    ]
    return build_batch(records, base_offset=base, **options)  # type: ignore[arg-type]


def header(data: bytearray, position: int, size: int, number: int) -> bytearray:
    """Return the batch with another number in its header and a correct CRC."""
    changed = bytearray(data)
    changed[position : position + size] = number.to_bytes(size, "big", signed=True)
    seal(changed, 0, len(changed))
    return changed


blobs = st.none() | st.binary(max_size=300)
records = st.tuples(
    blobs,
    blobs,
    st.integers(0, 4_000_000_000_000),
    st.lists(st.tuples(st.text(max_size=8), blobs), max_size=3),
)
batches = st.tuples(
    st.lists(records, min_size=1, max_size=20),
    st.sampled_from(sorted(CODECS.values())),
    st.integers(0, 3),
    st.integers(0, 1),
)


@settings(deadline=None, max_examples=150)
@given(st.lists(batches, min_size=1, max_size=6), st.integers(0, 60), st.integers(0, 60))
def test_reads_what_the_plain_reader_reads(
    written: list[tuple[list[NewRecord], int, int, int]], low: int, high: int
) -> None:
    data, offset = bytearray(), 0
    for content, codec, gap, timestamp_type in written:
        data += build_batch(content, base_offset=offset, codec=codec, timestamp_type=timestamp_type)
        offset += len(content) + gap
    high = max(low, high)
    assert rows(decode(data, low=low, high=high)) == expected(bytes(data), low, high)


@pytest.mark.parametrize("codec", CODECS.values())
def test_large_batches_are_cut_into_arrow_batches(codec: int) -> None:
    data = numbered(BATCH_ROWS + 1000, codec=codec)
    made = decode(data)
    assert [batch.num_rows for batch in made] == [BATCH_ROWS, 1000]
    assert rows(made) == expected(bytes(data))


def test_arrow_batches_are_bounded_in_bytes() -> None:
    value = bytes(BATCH_BYTES // 40)
    data = b"".join(build_batch([(None, value, 0, ())] * 10, base_offset=10 * n) for n in range(12))
    made = decode(data)
    assert len(made) == 3
    assert all(batch.nbytes < BATCH_BYTES + 100_000 for batch in made)
    assert [row["value"] for row in rows(made)] == [value] * 120


@pytest.mark.parametrize("codec", [0, ZSTD])
def test_a_record_larger_than_an_arrow_batch(codec: int) -> None:
    content = random.Random(1).randbytes(BATCH_BYTES + 5)
    small: NewRecord = (b"k", b"v", 0, ())
    data = build_batch([small, (content, content, 0, [("h", content)]), small], codec=codec)
    made = decode(data)
    assert [batch.num_rows for batch in made] == [1, 2]
    assert rows(made) == expected(bytes(data))


def test_a_record_with_more_headers_than_an_arrow_batch_has_room_for() -> None:
    data = build_batch([(None, None, 0, [("", None)] * (BATCH_HEADERS + 3))])
    assert rows(decode(data)) == expected(bytes(data))


def test_records_of_several_partitions_share_an_arrow_batch() -> None:
    made = decode(numbered(3), numbered(2, 7), b"", numbered(1))
    assert [batch.num_rows for batch in made] == [6]
    assert made[0]["partition"].to_pylist() == [0, 0, 0, 1, 1, 3]
    assert made[0]["offset"].to_pylist() == [0, 1, 2, 7, 8, 0]


def test_topics_share_an_arrow_batch() -> None:
    decoder = Decoder(("topic", "offset"))
    for topic in ("a", "bcd"):
        assert not list(
            decoder.decode(
                FetchedBatches(topic, 0, memoryview(numbered(2)), 0, 2, AbortedFilter(()))
            )
        )
    last = decoder.finish()
    assert last is not None
    assert last["topic"].to_pylist() == ["a", "a", "bcd", "bcd"]


@pytest.mark.parametrize("column", ALL)
def test_only_the_wanted_columns_are_there(column: str) -> None:
    data = build_batch([(b"k", None, 5, [("h", b"x")]), (None, b"v", 6, ())])
    assert rows(decode(data, columns=(column,))) == [
        {column: row[column]} for row in expected(bytes(data))
    ]


def test_columns_come_in_the_order_asked_for() -> None:
    (made,) = decode(numbered(1), columns=("offset", "value", "topic"))
    assert made.schema.names == ["offset", "value", "topic"]


def test_an_unknown_column_is_refused() -> None:
    with pytest.raises(ValueError, match="there is no column colour"):
        Decoder(("colour",))


def test_log_append_time() -> None:
    data = build_batch([(None, b"a", 1, ()), (None, b"b", 9, ())], timestamp_type=LOG_APPEND_TIME)
    (made,) = decode(data, columns=("timestamp", "timestampType"))
    assert made["timestamp"].cast(pa.int64()).to_pylist() == [9000, 9000]
    assert made["timestampType"].to_pylist() == [1, 1]


def test_a_batch_that_compaction_emptied() -> None:
    emptied = numbered(3, codec=ZSTD)[:HEADER_SIZE]
    emptied[LENGTH_OFFSET : LENGTH_OFFSET + 4] = (HEADER_SIZE - 12).to_bytes(4, "big")
    emptied[RECORD_COUNT_OFFSET:HEADER_SIZE] = bytes(4)
    seal(emptied, 0, len(emptied))
    data = emptied + numbered(2, 3, codec=ZSTD)
    assert [row["offset"] for row in rows(decode(data))] == [3, 4]


def test_control_batches_are_not_for_readers() -> None:
    marker = build_marker(
        ControlType.COMMIT, producer_id=1, producer_epoch=0, coordinator_epoch=0, timestamp=0
    )
    marker[0:8] = (2).to_bytes(8, "big")
    data = numbered(2) + marker + numbered(2, 3)
    assert [row["offset"] for row in rows(decode(data))] == [0, 1, 3, 4]


def test_aborted_transactions_are_left_out() -> None:
    def batch(base: int, producer: int, **options: bool) -> bytearray:
        return build_batch(
            [(None, b"%d" % producer, 0, ())],
            base_offset=base,
            producer_id=producer,
            producer_epoch=0,
            base_sequence=0,
            is_transactional=options.get("transactional", True),
        )

    def marker(base: int, producer: int, kind: ControlType) -> bytearray:
        return build_marker(
            kind,
            producer_id=producer,
            producer_epoch=0,
            coordinator_epoch=0,
            timestamp=0,
            base_offset=base,
        )

    data = b"".join(
        [
            batch(0, 1),
            batch(1, 2),
            batch(2, 1, transactional=False),
            marker(3, 1, ControlType.ABORT),
            batch(4, 1),
            marker(5, 2, ControlType.COMMIT),
            batch(6, 2),
            marker(7, 2, ControlType.ABORT),
            marker(8, 1, ControlType.COMMIT),
        ]
    )
    aborted = [AbortedTransaction(6, 2), AbortedTransaction(0, 1)]
    assert [row["offset"] for row in rows(decode(data, aborted=aborted))] == [1, 2, 4]
    assert [row["offset"] for row in rows(decode(data))] == [0, 1, 2, 4, 6]


def test_an_incomplete_batch_at_the_end_is_left() -> None:
    whole = numbered(2)
    for cut in (1, 20, 61, len(whole) - 1):
        assert [row["offset"] for row in rows(decode(whole + numbered(2, 2)[:cut]))] == [0, 1]


def test_header_keys_that_are_not_utf8() -> None:
    data = build_batch([(None, None, 0, [("\udcff", b"1"), ("ä", b"2")])])
    (made,) = decode(data, columns=("headers",))
    assert made["headers"].to_pylist() == [
        [{"key": "�", "value": b"1"}, {"key": "ä", "value": b"2"}]
    ]


def test_wrong_checksums_are_found_unless_told_not_to_look() -> None:
    data = numbered(2) + numbered(2, 2)
    data[-3] ^= 0xFF
    with pytest.raises(DamagedRecords, match=r"t-0 .* offset 2: its checksum is wrong"):
        decode(data)
    assert len(rows(decode(data, check_crcs=False))) == 4


def test_timestamps_that_spark_cannot_express() -> None:
    data = build_batch([(b"k", b"v", (1 << 63) - 5, ())])
    with pytest.raises(DamagedRecords, match="the option columns"):
        decode(data)
    assert rows(decode(data, columns=("value",))) == [{"value": b"v"}]


@pytest.mark.parametrize(
    ("position", "size", "number", "reason"),
    [
        (MAGIC_OFFSET, 1, 3, "magic"),
        (LENGTH_OFFSET, 4, 20, "shorter than its header"),
        (LENGTH_OFFSET, 4, -1, "shorter than its header"),
        (RECORD_COUNT_OFFSET, 4, -1, "record count is negative or more"),
        (RECORD_COUNT_OFFSET, 4, 1 << 30, "record count is negative or more"),
        (RECORD_COUNT_OFFSET, 4, 2, "bytes follow"),
        (RECORD_COUNT_OFFSET, 4, 4, "cut off"),
        (LAST_OFFSET_DELTA_OFFSET, 4, 1, "do not increase"),
        (LAST_OFFSET_DELTA_OFFSET, 4, -1, "out of range"),
        (0, 8, -5, "out of range"),
        (0, 8, (1 << 63) - 1, "out of range"),
        (ATTRIBUTES_OFFSET, 2, 5, "compression codec 5 is unknown"),
        (ATTRIBUTES_OFFSET, 2, 4, "zstd data is damaged"),
        (ATTRIBUTES_OFFSET, 2, 2, "snappy data"),
    ],
)
def test_headers_that_lie(position: int, size: int, number: int, reason: str) -> None:
    with pytest.raises(DamagedRecords, match=reason):
        decode(header(numbered(3), position, size, number))


@settings(deadline=None, max_examples=400)
@given(st.data())
def test_hostile_bytes_are_an_error_or_records_and_nothing_else(draw: st.DataObject) -> None:
    """Check that the loops end on any bytes, and that what they decode is valid."""
    content = draw.draw(st.lists(records, min_size=1, max_size=6))
    data = build_batch(content)
    for _ in range(draw.draw(st.integers(1, 4))):
        at = draw.draw(st.integers(HEADER_SIZE, len(data) - 1))
        data[at] = draw.draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFE, 0xFF]))
    try:
        made = rows(decode(data, check_crcs=False, columns=("key", "value", "offset", "headers")))
    except DamagedRecords:
        return
    assert len(made) == len(content)


def test_a_bomb_is_refused_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyspark_ottla.decode.decompression.DECOMPRESSED_LIMIT", 8 << 20)
    data = build_batch([(None, bytes(9 << 20), 0, ())], codec=ZSTD)
    with pytest.raises(DamagedRecords, match="takes more than 8388608 bytes"):
        decode(data)


def test_arrays_are_used_again_when_nothing_refers_to_them() -> None:
    data = numbered(10)
    (first,) = decode(data)
    address = first["value"].buffers()[2].address
    kept = first["value"].slice(3, 2)
    del first
    (second,) = decode(numbered(10, 100))
    assert second["value"].buffers()[2].address != address
    assert kept.to_pylist() == [b"value 3", b"value 4"]
    del kept
    (third,) = decode(data)
    assert third["value"].buffers()[2].address == address
