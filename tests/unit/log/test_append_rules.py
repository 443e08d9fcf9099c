"""Batches that a log refuses, the errors, and the changes to batches that it accepts."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ottla.config.topic import LogConfig
from ottla.model.errors import ApiError, ErrorCode
from ottla.records.batch import HEADER_SIZE, crc_of, parse_header, seal
from ottla.records.record import build_batch, records_of
from tests.support.log import NOW, append, append_all, batch_of, new_log, read_all

CODECS = {"uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


def refusal(config: LogConfig, batch: bytearray) -> ErrorCode:
    """Return the error of a refused append, and check that nothing was queued."""
    log = new_log(config)
    with pytest.raises(ApiError) as error:
        append(log, batch)
    assert error.value.message
    assert log.log_end_offset == 0
    assert not log.has_queued
    return error.value.code


def changed(at: int, value: bytes, *, sealed: bool = True) -> bytearray:
    batch = batch_of(2)
    batch[at : at + len(value)] = value
    if sealed:
        seal(batch, 0, len(batch))
    return batch


def test_a_good_batch_passes() -> None:
    log = new_log()
    assert append_all(log, batch_of(2), batch_of(1)) == [0, 2]


@pytest.mark.parametrize(
    ("damage", "code"),
    [
        (lambda b: b[:0], ErrorCode.INVALID_RECORD),
        (lambda b: b[:16], ErrorCode.INVALID_RECORD),
        (lambda b: b[:40], ErrorCode.INVALID_RECORD),
        (lambda b: b[:HEADER_SIZE], ErrorCode.INVALID_RECORD),
        (lambda b: b[:-1], ErrorCode.INVALID_RECORD),
        (lambda b: b + bytes(12), ErrorCode.CORRUPT_MESSAGE),  # a batch of no bytes
        (
            lambda b: b + bytes(11) + b"\x40" + bytes(4) + b"\x03",
            ErrorCode.CORRUPT_MESSAGE,
        ),
        (lambda b: b + b, ErrorCode.INVALID_RECORD),
        (lambda b: b + b + b"\0", ErrorCode.INVALID_RECORD),
    ],
)
def test_exactly_one_whole_batch(damage: Callable[[bytearray], bytearray], code: ErrorCode) -> None:
    assert refusal(LogConfig(), damage(batch_of(2))) == code


@pytest.mark.parametrize("trailing", [1, 11, 12, 16, 17, 60, -1])
@pytest.mark.parametrize("codec", [0, 4])
def test_the_beginning_of_another_batch_is_left_out(trailing: int, codec: int) -> None:
    """Kafka does the same: a batch that is cut off at the end is no batch."""
    log = new_log()
    batch = batch_of(2, codec=codec)
    append_all(log, batch + batch_of(3)[:trailing], batch_of(1))
    assert log.log_end_offset == 3
    assert [stored.size for stored in read_all(log)] == [len(batch), len(batch_of(1))]


@pytest.mark.parametrize(
    ("batch", "code"),
    [
        (changed(0, (5).to_bytes(8, "big")), ErrorCode.INVALID_RECORD),  # base offset
        (changed(8, (2**31 - 1).to_bytes(4, "big")), ErrorCode.INVALID_RECORD),  # length
        (changed(8, b"\xff\xff\xff\xff"), ErrorCode.CORRUPT_MESSAGE),
        (changed(8, (13).to_bytes(4, "big")), ErrorCode.CORRUPT_MESSAGE),
        (changed(8, (40).to_bytes(4, "big")), ErrorCode.CORRUPT_MESSAGE),  # less than a header
        (changed(16, b"\x00"), ErrorCode.INVALID_RECORD),
        (changed(16, b"\x01"), ErrorCode.INVALID_RECORD),
        (changed(16, b"\x03"), ErrorCode.CORRUPT_MESSAGE),
        (changed(16, b"\xff"), ErrorCode.CORRUPT_MESSAGE),
        (changed(17, bytes(4), sealed=False), ErrorCode.CORRUPT_MESSAGE),  # CRC
        (changed(70, b"\x99", sealed=False), ErrorCode.CORRUPT_MESSAGE),
        (changed(22, b"\x05"), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),  # attributes
        (changed(22, b"\x10"), ErrorCode.INVALID_RECORD),
        (changed(22, b"\x20"), ErrorCode.INVALID_RECORD),
        (changed(23, (5).to_bytes(4, "big")), ErrorCode.INVALID_RECORD),  # last offset delta
        (changed(23, b"\xff\xff\xff\xff"), ErrorCode.INVALID_RECORD),
        (changed(57, bytes(4)), ErrorCode.INVALID_RECORD),  # record count
        (changed(57, (3).to_bytes(4, "big")), ErrorCode.INVALID_RECORD),
        (changed(57, b"\xff\xff\xff\xff"), ErrorCode.INVALID_RECORD),
        (changed(43, (9).to_bytes(8, "big")), ErrorCode.INVALID_RECORD),  # id without sequence
    ],
)
def test_headers_that_cannot_be(batch: bytearray, code: ErrorCode) -> None:
    assert refusal(LogConfig(), batch) == code


def test_zero_records_with_a_delta_of_minus_one() -> None:
    batch = batch_of(1)
    batch[23:27] = b"\xff\xff\xff\xff"
    batch[57:61] = bytes(4)
    seal(batch, 0, len(batch))
    assert refusal(LogConfig(), batch) == ErrorCode.INVALID_RECORD


def test_a_producer_needs_an_epoch() -> None:
    batch = batch_of(1, producer_id=5, producer_epoch=-1)
    assert refusal(LogConfig(), batch) == ErrorCode.INVALID_RECORD


def test_unknown_attribute_bits_are_kept() -> None:
    log = new_log()
    append_all(log, changed(21, b"\x40\x40"))
    assert read_all(log)[0].attributes == 0x4040


def test_sizes() -> None:
    size = len(batch_of(3))
    assert refusal(LogConfig(max_message_bytes=size - 1), batch_of(3)) == (
        ErrorCode.MESSAGE_TOO_LARGE
    )
    assert refusal(LogConfig(segment_bytes=size - 1), batch_of(3)) == (
        ErrorCode.RECORD_LIST_TOO_LARGE
    )
    exact = LogConfig(max_message_bytes=size, segment_bytes=size)
    assert append_all(new_log(exact), batch_of(3)) == [0]


@pytest.mark.parametrize(
    ("timestamp", "is_taken"),
    [
        (NOW, True),
        (NOW + 50, True),
        (NOW + 51, False),
        (NOW - 100, True),
        (NOW - 101, False),
        (-1, True),
        (0, False),
    ],
)
def test_timestamps_near_now(timestamp: int, is_taken: bool) -> None:
    config = LogConfig(message_timestamp_before_max_ms=100, message_timestamp_after_max_ms=50)
    batch = batch_of(1, timestamp=timestamp)
    if is_taken:
        assert append_all(new_log(config), batch) == [0]
    else:
        assert refusal(config, batch) == ErrorCode.INVALID_TIMESTAMP


def test_the_largest_timestamp_counts_as_well() -> None:
    batch = build_batch([(b"k", b"v", NOW, ()), (b"k", b"v", NOW + 10**9, ())])
    assert refusal(LogConfig(), batch) == ErrorCode.INVALID_TIMESTAMP


def test_by_default_old_timestamps_are_welcome() -> None:
    assert append_all(new_log(), batch_of(1, timestamp=0)) == [0]


def test_time_bounds_follow_the_time_and_the_settings() -> None:
    log = new_log(LogConfig(message_timestamp_after_max_ms=10))
    append(log, batch_of(1, timestamp=NOW + 10))
    with pytest.raises(ApiError):
        append(log, batch_of(1, timestamp=NOW + 11))
    append(log, batch_of(1, timestamp=NOW + 11), now_ms=NOW + 1)
    log.reconfigure(LogConfig(message_timestamp_after_max_ms=500))
    append(log, batch_of(1, timestamp=NOW + 500))


@pytest.mark.parametrize("codec", range(5))
def test_log_append_time_is_stamped_and_sealed(codec: int) -> None:
    log = new_log(LogConfig(message_timestamp_type="LogAppendTime"))
    batch = build_batch([(b"k", b"v", 123, ()), (b"k", b"w", 456, ())], codec=codec)
    append_all(log, batch)
    assert log.last_append_time == NOW
    piece = log.read(0, 10**6, 2, at_least_one=True)
    assert piece is not None
    stored = piece.read()
    header = parse_header(stored, 0)
    assert header.timestamp_type == 1
    assert header.max_timestamp == NOW
    assert crc_of(memoryview(stored), 0, len(stored)) == header.crc
    assert [record.timestamp for record in records_of(stored)] == [NOW, NOW]


def test_the_topic_decides_about_the_timestamp_type() -> None:
    log = new_log()
    append_all(log, changed(22, b"\x08"))
    piece = log.read(0, 10**6, 2, at_least_one=True)
    assert piece is not None
    header = parse_header(piece.read(), 0)
    assert header.timestamp_type == 0
    assert crc_of(memoryview(piece.read()), 0, piece.length) == header.crc
    appending = LogConfig(message_timestamp_type="LogAppendTime")
    assert refusal(appending, changed(22, b"\x08")) == ErrorCode.INVALID_TIMESTAMP


def test_create_time_has_no_append_time() -> None:
    log = new_log()
    append_all(log, batch_of(1))
    assert log.last_append_time == -1


def test_far_timestamps_do_not_matter_with_log_append_time() -> None:
    log = new_log(LogConfig(message_timestamp_type="LogAppendTime"))
    assert append_all(log, batch_of(1, timestamp=NOW + 10**12)) == [0]


@pytest.mark.parametrize("target", list(CODECS))
@pytest.mark.parametrize("codec", range(5))
def test_batches_are_recompressed_to_the_topics_codec(target: str, codec: int) -> None:
    log = new_log(LogConfig(compression_type=target))
    records = [(b"k%d" % n, b"v" * 100, NOW + n, (("h", b"x"),)) for n in range(20)]
    sent = build_batch(records, codec=codec, producer_id=4, producer_epoch=1, base_sequence=9)
    append_all(log, batch_of(1), sent)
    piece = log.read(1, 10**6, 21, at_least_one=True)
    assert piece is not None
    stored = piece.read()
    header = parse_header(stored, 0)
    assert header.compression == CODECS[target]
    assert (header.base_offset, header.record_count) == (1, 20)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (4, 1, 9)
    assert crc_of(memoryview(stored), 0, len(stored)) == header.crc
    assert [(r.key, r.value, r.timestamp) for r in records_of(stored)] == [
        (key, value, timestamp) for key, value, timestamp, _ in records
    ]


def test_producer_keeps_the_bytes_as_they_came() -> None:
    log = new_log()
    sent = bytes(batch_of(3, codec=4))
    append_all(log, bytearray(sent))
    piece = log.read(0, 10**6, 3, at_least_one=True)
    assert piece is not None
    assert piece.read()[21:] == sent[21:]


def test_what_cannot_be_decompressed_is_refused_for_recompression() -> None:
    batch = batch_of(2, codec=4)
    batch[HEADER_SIZE:] = b"\x99" * (len(batch) - HEADER_SIZE)
    seal(batch, 0, len(batch))
    assert refusal(LogConfig(compression_type="lz4"), batch) == ErrorCode.INVALID_RECORD


def test_a_batch_that_grows_past_the_limit_is_refused() -> None:
    batch = build_batch([(b"k", bytes(10_000), NOW, ())], codec=4)
    config = LogConfig(compression_type="uncompressed", max_message_bytes=5000)
    assert refusal(config, batch) == ErrorCode.MESSAGE_TOO_LARGE


def test_compacted_topics_refuse_null_keys() -> None:
    config = LogConfig(cleanup_policy=frozenset({"compact"}))
    keyless = build_batch([(b"k", b"v", NOW, ()), (None, b"v", NOW, ())])
    assert refusal(config, keyless) == ErrorCode.INVALID_RECORD
    assert append_all(new_log(config), batch_of(3)) == [0]


def test_records_that_cannot_be_read_are_refused_on_compacted_topics() -> None:
    batch = batch_of(2)
    batch[HEADER_SIZE:] = b"\xff" * (len(batch) - HEADER_SIZE)
    seal(batch, 0, len(batch))
    config = LogConfig(cleanup_policy=frozenset({"compact", "delete"}))
    assert refusal(config, batch) == ErrorCode.INVALID_RECORD


def test_the_batch_may_lie_anywhere_in_its_buffer() -> None:
    log = new_log()
    batch = batch_of(2)
    buffer = bytearray(b"\xee" * 33) + batch + bytearray(b"\xdd" * 70)
    end = 33 + len(batch)
    assert log.append_as_leader(buffer, memoryview(buffer), 33, end, 4, NOW) == 0
    log.write_queued()
    log.high_watermark = 2
    assert buffer[:33] == b"\xee" * 33
    assert buffer[end:] == b"\xdd" * 70
    assert read_all(log)[0].partition_leader_epoch == 4
