"""Message sets written by aiokafka and kafka-python, read here."""

from __future__ import annotations

from struct import pack_into
from zlib import crc32

import pytest
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder

from ottla.records.batch import LOG_APPEND_TIME, Batch, CorruptBatch
from ottla.records.compression import GZIP, LZ4, compress
from ottla.records.legacy import Message, crc_of_message, records_of_message, scan_any
from ottla.records.lz4_header import repair
from ottla.records.record import Record, build_batch

PLAIN = [(b"k0", b"v0"), (None, b"v1"), (b"k2", None), (b"", b"")]


def _message_set(magic: int, codec: int) -> bytearray:
    builder = LegacyRecordBatchBuilder(magic=magic, compression_type=codec, batch_size=1 << 20)
    for offset, (key, value) in enumerate(PLAIN):
        builder.append(offset, 1000 + offset, key, value)
    return bytearray(builder.build())


def _set_offset(data: bytearray, offset: int) -> None:
    """Give a wrapper the offset of its last message, as a broker does."""
    pack_into(">q", data, 0, offset)


def _expected(magic: int, base: int) -> list[Record]:
    return [
        Record(base + n, 1000 + n if magic else -1, key, value, ())
        for n, (key, value) in enumerate(PLAIN)
    ]


def _read(data: bytearray) -> list[Record]:
    entries = list(scan_any(data, 0, len(data)))
    records: list[Record] = []
    for message in entries:
        assert isinstance(message, Message)
        assert crc_of_message(memoryview(data), message) == message.crc
        records += records_of_message(data, message)
    assert entries[-1].end == len(data)
    return records


@pytest.mark.parametrize("magic", [0, 1])
def test_plain_messages(magic: int) -> None:
    assert _read(_message_set(magic, 0)) == _expected(magic, 0)


@pytest.mark.parametrize("codec", [1, 2, 3])
def test_wrappers_of_magic_1_count_from_their_last_message(codec: int) -> None:
    data = _message_set(1, codec)
    _set_offset(data, 503)
    (wrapper,) = scan_any(data, 0, len(data))
    assert (wrapper.last_offset, wrapper.next_offset, wrapper.compression) == (503, 504, codec)
    assert _read(data) == _expected(1, 500)


@pytest.mark.parametrize("codec", [1, 2])
def test_wrappers_of_magic_0_hold_absolute_offsets(codec: int) -> None:
    data = _message_set(0, codec)
    _set_offset(data, 3)
    assert _read(data) == _expected(0, 0)


def test_lz4_of_magic_0_with_its_wrong_checksum() -> None:
    frame = bytearray(compress(LZ4, _message_set(0, 0)))
    assert repair(bytes(frame)) == frame
    frame[6] ^= 0x5A
    builder = LegacyRecordBatchBuilder(magic=0, compression_type=0, batch_size=1 << 20)
    builder.append(3, None, None, bytes(frame))
    data = bytearray(builder.build())
    data[17] |= LZ4
    pack_into(">I", data, 12, crc32(data[16:]))
    assert _read(data) == _expected(0, 0)


def test_lz4_header_checksum_with_a_content_size() -> None:
    frame = pytest.importorskip("lz4.frame").compress(b"hello" * 100, store_size=True)
    assert frame[4] & 0x08
    damaged = bytearray(frame)
    damaged[14] ^= 0xFF
    assert repair(bytes(damaged)) == frame


def test_log_append_time_of_a_wrapper() -> None:
    data = _message_set(1, 1)
    _set_offset(data, 3)
    data[17] |= 0x08
    pack_into(">q", data, 18, 9999)
    (wrapper,) = scan_any(data, 0, len(data))
    assert isinstance(wrapper, Message)
    assert wrapper.timestamp_type == LOG_APPEND_TIME
    assert {record.timestamp for record in records_of_message(data, wrapper)} == {9999}


def test_magic_0_has_no_timestamp_type() -> None:
    data = _message_set(0, 0)
    message = next(scan_any(data, 0, len(data)))
    assert message.timestamp_type is None
    assert message.max_timestamp == -1


def test_a_log_that_mixes_magics() -> None:
    old, older, new = _message_set(1, 1), _message_set(0, 0), build_batch([(b"k", b"v", 1, ())])
    data = older + old + new
    entries = list(scan_any(data, 0, len(data)))
    assert [entry.magic for entry in entries] == [0, 0, 0, 0, 1, 2]
    assert isinstance(entries[-1], Batch)
    assert entries[-1].position == len(older) + len(old)


@pytest.mark.parametrize("kept", [0, 5, 16, 17, 25])
def test_scan_stops_before_an_incomplete_message(kept: int) -> None:
    data = _message_set(1, 0)
    first = next(scan_any(data, 0, len(data)))
    cut = data[: first.end + kept]
    assert [message.position for message in scan_any(cut, 0, len(cut))] == [0]


@pytest.mark.parametrize(("magic", "length"), [(0, 13), (1, 21), (1, -1), (2, 48), (0, 0)])
def test_scan_refuses_lengths_no_message_has(magic: int, length: int) -> None:
    data = _message_set(1, 0)
    data[16] = magic
    pack_into(">i", data, 8, length)
    with pytest.raises(CorruptBatch, match="length"):
        list(scan_any(data, 0, len(data)))


def test_scan_refuses_other_magics() -> None:
    data = _message_set(1, 0)
    data[16] = 3
    with pytest.raises(CorruptBatch, match="magic 3"):
        list(scan_any(data, 0, len(data)))


def _damaged(position: int, number: int) -> bytearray:
    data = _message_set(1, 0)
    pack_into(">i", data, position, number)
    return data


@pytest.mark.parametrize(
    "data",
    [_damaged(26, -2), _damaged(26, 2**31 - 1), _damaged(26, 3), _damaged(32, 1), _damaged(32, -1)],
    ids=["key -2", "key too long", "key over value", "value too short", "value null"],
)
def test_damaged_fields(data: bytearray) -> None:
    message = next(scan_any(data, 0, len(data)))
    assert isinstance(message, Message)
    with pytest.raises(CorruptBatch) as error:
        records_of_message(data, message)
    assert error.value.position == 0


def test_a_wrapper_inside_a_wrapper_is_refused() -> None:
    inner = _message_set(1, 1)
    builder = LegacyRecordBatchBuilder(magic=1, compression_type=0, batch_size=1 << 20)
    builder.append(0, 1, None, compress(GZIP, inner))
    outer = bytearray(builder.build())
    outer[17] |= GZIP
    (message,) = scan_any(outer, 0, len(outer))
    assert isinstance(message, Message)
    with pytest.raises(CorruptBatch, match="wrapper inside a wrapper"):
        records_of_message(outer, message)
