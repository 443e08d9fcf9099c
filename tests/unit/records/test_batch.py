from __future__ import annotations

import subprocess
import sys

import pytest
from crc32c import crc32c

from ottla.records.batch import (
    CRC_OFFSET,
    HEADER_SIZE,
    LENGTH_OFFSET,
    LOG_APPEND_TIME,
    MAGIC_OFFSET,
    Batch,
    CorruptBatch,
    crc_of,
    parse_header,
    scan,
    seal,
)
from ottla.records.record import build_batch


def _batch(base_offset: int = 0, count: int = 3) -> bytearray:
    records = [(b"key", b"value", 1000 + n, ()) for n in range(count)]
    return build_batch(records, base_offset=base_offset, producer_id=7, producer_epoch=1)


def test_header_fields_are_where_the_protocol_has_them() -> None:
    data = build_batch(
        [(None, b"a", 500, ()), (None, b"b", 900, ()), (None, b"c", 700, ())],
        base_offset=0x0102030405060708,
        producer_id=42,
        producer_epoch=3,
        base_sequence=10,
        leader_epoch=5,
        is_transactional=True,
    )
    assert data[:8] == bytes(range(1, 9))
    assert data[8:12] == (len(data) - 12).to_bytes(4, "big")
    assert data[12:16] == b"\0\0\0\x05"
    assert data[16] == 2
    assert data[17:21] == crc32c(data[21:]).to_bytes(4, "big")
    assert data[21:23] == b"\x00\x10"
    assert data[23:27] == b"\0\0\0\x02"
    assert data[27:35] == (500).to_bytes(8, "big")
    assert data[35:43] == (900).to_bytes(8, "big")
    assert data[43:51] == (42).to_bytes(8, "big")
    assert data[51:53] == b"\0\x03"
    assert data[53:57] == b"\0\0\0\x0a"
    assert data[57:61] == b"\0\0\0\x03"


def test_parse_header_at_a_position() -> None:
    data = b"junk" + _batch(base_offset=100)
    batch = parse_header(data, 4)
    assert isinstance(batch, Batch)
    assert batch.position == 4
    assert (batch.base_offset, batch.last_offset, batch.next_offset) == (100, 102, 103)
    assert batch.size == len(data) - 4
    assert batch.end == len(data)
    assert batch.has_producer_id


@pytest.mark.parametrize(
    ("base", "delta", "last"),
    [(-1, 5, -1), (0, 0, 0), (10, 4, 14), (2**31 - 1, 0, 2**31 - 1), (2**31 - 2, 3, 1)],
)
def test_last_sequence_wraps_to_zero(base: int, delta: int, last: int) -> None:
    batch = parse_header(_batch(), 0)._replace(base_sequence=base, last_offset_delta=delta)
    assert batch.last_sequence == last


def test_attributes() -> None:
    batch = parse_header(_batch(), 0)
    assert not batch.is_control
    assert not batch.is_transactional
    assert batch.delete_horizon_ms is None
    batch = batch._replace(attributes=0x7C, base_timestamp=99)
    assert batch.compression == 4
    assert batch.timestamp_type == LOG_APPEND_TIME
    assert batch.is_transactional
    assert batch.is_control
    assert batch.delete_horizon_ms == 99


def test_scan_gives_every_whole_batch() -> None:
    data = _batch(0, 3) + _batch(3, 1) + _batch(4, 2)
    assert [batch.base_offset for batch in scan(data, 0, len(data))] == [0, 3, 4]


@pytest.mark.parametrize("kept", [0, 1, 11, 12, 16, HEADER_SIZE - 1, HEADER_SIZE, HEADER_SIZE + 5])
def test_scan_stops_before_an_incomplete_batch(kept: int) -> None:
    first, second = _batch(0), _batch(3)
    data = first + second[:kept]
    assert [batch.position for batch in scan(data, 0, len(data))] == [0]


def test_scan_keeps_to_its_range() -> None:
    data = _batch(0) + _batch(3) + _batch(6)
    size = len(data) // 3
    assert [batch.base_offset for batch in scan(data, size, 2 * size)] == [3]


@pytest.mark.parametrize("length", [-1, 0, 48, -(2**31)])
def test_scan_refuses_a_length_below_the_header(length: int) -> None:
    data = _batch(0) + _batch(3)
    position = len(data) // 2
    data[position + LENGTH_OFFSET : position + 12] = length.to_bytes(4, "big", signed=True)
    batches = scan(data, 0, len(data))
    assert next(batches).base_offset == 0
    with pytest.raises(CorruptBatch, match="length") as error:
        next(batches)
    assert error.value.position == position


def test_scan_refuses_another_magic() -> None:
    data = _batch()
    data[MAGIC_OFFSET] = 1
    with pytest.raises(CorruptBatch, match="magic 1"):
        list(scan(data, 0, len(data)))


def test_seal_stores_what_crc_of_computes() -> None:
    data = bytearray(b"before") + _batch() + b"after"
    start, end = 6, len(data) - 5
    data[end - 1] ^= 1
    assert crc_of(memoryview(data), start, end) != parse_header(data, start).crc
    seal(data, start, end)
    stored = int.from_bytes(data[start + CRC_OFFSET : start + CRC_OFFSET + 4], "big")
    assert stored == crc32c(data[start + 21 : end])
    data += b"."  # no view is left that would pin the buffer


def test_reading_headers_loads_nothing_heavy() -> None:
    code = (
        "import sys, ottla.records.batch, ottla.records.record;"
        "heavy = {'cramjam', 'email', 'socket', 'importlib.metadata'};"
        "print(sorted(heavy & sys.modules.keys()))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"
