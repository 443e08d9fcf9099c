"""The hand-written Produce and Fetch codecs say what the generated ones say, in every version."""

from __future__ import annotations

import random
import struct

import pytest

from ottla.broker.codecs import fetch_request as fetch_codec
from ottla.broker.codecs import produce as produce_codec
from ottla.broker.codecs.fetch_request import decode_fetch
from ottla.broker.codecs.fetch_response import (
    PartitionData,
    Records,
    encode_fetch_in_steps,
    encode_fetch_response,
)
from ottla.broker.codecs.large_request import LargeRequest
from ottla.broker.codecs.produce import (
    PartitionResult,
    ProduceRequest,
    decode_flexible,
    decode_legacy,
    encode_produce_response,
)
from ottla.broker.handlers import SERVED
from ottla.broker.handlers.fetch import SMALL_READ_BYTES
from ottla.log.segment.file_slice import FileSlice, FileSlices
from ottla.memory_files import MemoryFiles
from ottla.model.steps import run_to_end
from ottla.wire import messages  # noqa: F401
from ottla.wire.api_table import ApiKey
from ottla.wire.codec import decoder, encoder
from ottla.wire.header import decode_response_header
from ottla.wire.messages import fetch as fetch_messages
from ottla.wire.messages import produce as produce_messages
from ottla.wire.primitives import DecodeError

PRODUCE_VERSIONS = range(SERVED[ApiKey.PRODUCE].oldest, SERVED[ApiKey.PRODUCE].newest + 1)
FETCH_VERSIONS = range(SERVED[ApiKey.FETCH].oldest, SERVED[ApiKey.FETCH].newest + 1)
TOPIC_ID = bytes(range(16))
TOPIC_IDS = {0: TOPIC_ID, 200: bytes(range(16, 32))}


def produce_request(version: int) -> produce_messages.ProduceRequest:
    return produce_messages.ProduceRequest(
        transactional_id="tx" if version % 2 else None,
        acks=-1,
        timeout=1234,
        topic_data=[
            produce_messages.TopicProduceData(
                name=f"topic-{'x' * length}",
                topic_id=TOPIC_IDS[length],
                partition_data=[
                    produce_messages.PartitionProduceData(index=7, records=b"r" * 200),
                    produce_messages.PartitionProduceData(index=8, records=None),
                    produce_messages.PartitionProduceData(index=9, records=b""),
                ],
            )
            for length in (0, 200)
        ],
    )


def decoded(version: int, buffer: bytearray, start: int, end: int) -> ProduceRequest:
    decode = decode_flexible if version >= produce_codec.FIRST_FLEXIBLE else decode_legacy
    return decode(version, buffer, memoryview(buffer), start, end)


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
def test_produce_requests_are_read_as_the_schema_has_them(version: int) -> None:
    body = encoder(produce_messages.ProduceRequest, version)(produce_request(version))
    buffer = bytearray(b"before" + body + b"after!")
    transactional_id, acks, timeout_ms, topics, *_ = decoded(version, buffer, 6, 6 + len(body))

    assert transactional_id == (b"tx" if version % 2 else None)
    assert (acks, timeout_ms) == (-1, 1234)
    for (key, partitions), length in zip(topics, (0, 200), strict=True):
        name = b"topic-" + b"x" * length
        assert key == (TOPIC_IDS[length] if version >= produce_codec.FIRST_TOPIC_ID else name)
        full, null, empty = partitions
        assert full[0] == 7
        assert buffer[full[1] : full[2]] == b"r" * 200
        assert null == (8, -1, -1)
        assert empty[0] == 9
        assert empty[1] == empty[2]


def simple_produce_request(name: str, size: int) -> bytes:
    """Return the body of a request in version 9 with one topic and one partition."""
    partition = produce_messages.PartitionProduceData(index=3, records=b"r" * size)
    return encoder(produce_messages.ProduceRequest, 9)(
        produce_messages.ProduceRequest(
            acks=1,
            timeout=1234,
            topic_data=[
                produce_messages.TopicProduceData(name=name, partition_data=[partition]),
            ],
        )
    )


@pytest.mark.parametrize("length", [1, 50, 125, 126, 127, 200])
@pytest.mark.parametrize("size", [0, 1, 126, 127, 128, 200, 16_382, 16_383, 20_000])
def test_a_request_with_one_partition_is_read_where_the_buffer_ends(length: int, size: int) -> None:
    name = "x" * length
    body = simple_produce_request(name, size)
    buffer = bytearray(b"before" + body)

    transactional_id, acks, timeout_ms, topics, *_ = decoded(9, buffer, 6, len(buffer))

    assert (transactional_id, acks, timeout_ms) == (None, 1, 1234)
    [(key, [(index, first, last)])] = topics
    assert (key, index, buffer[first:last]) == (name.encode(), 3, b"r" * size)


def test_a_request_with_one_partition_that_ends_too_early_is_refused() -> None:
    body = simple_produce_request("topic", 200)
    for end in range(len(body)):
        for buffer in (bytearray(body[:end]), bytearray(body)):
            with pytest.raises((DecodeError, IndexError, struct.error)):
                decoded(9, buffer, 0, end)


@pytest.mark.parametrize("version", range(produce_codec.FIRST_FLEXIBLE, PRODUCE_VERSIONS.stop))
def test_a_flexible_request_ends_with_its_tags(version: int) -> None:
    body = encoder(produce_messages.ProduceRequest, version)(produce_request(version))
    buffer = bytearray(body)

    for end in (len(body) - 1, len(body) - 2):
        with pytest.raises((DecodeError, IndexError)):
            decoded(version, buffer, 0, end)
    tagged = body[:-1] + b"\x01\x07\x02ab"
    assert decoded(version, bytearray(tagged), 0, len(tagged))[1:3] == (-1, 1234)
    with pytest.raises(DecodeError):
        decoded(version, bytearray(tagged), 0, len(tagged) - 1)


def test_a_request_without_topics_is_read_where_the_buffer_ends() -> None:
    body = encoder(produce_messages.ProduceRequest, 9)(
        produce_messages.ProduceRequest(acks=1, timeout=1234, topic_data=[])
    )

    _, acks, timeout_ms, topics, *_ = decoded(9, bytearray(body), 0, len(body))

    assert (acks, timeout_ms, topics) == (1, 1234, [])


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
@pytest.mark.parametrize("message", [None, "why it was refused"])
@pytest.mark.parametrize("count", [1, 3])
def test_produce_responses_are_read_back_by_the_schema(
    version: int, message: str | None, count: int
) -> None:
    key = TOPIC_ID if version >= produce_codec.FIRST_TOPIC_ID else b"topic"
    results: list[PartitionResult]
    results = [(i, 2, 100 + i, 55, 44, message, {}) for i in range(count)]
    frame = encode_produce_response(version, 99, [(key, results)])

    assert int.from_bytes(frame[:4]) == len(frame) - 4
    correlation_id, position = decode_response_header(0, version, frame, 4, len(frame))
    response, end = decoder(produce_messages.ProduceResponse, version)(frame, position, len(frame))
    assert (correlation_id, end) == (99, len(frame))
    (topic,) = response.responses
    assert topic.topic_id == key if version >= 13 else topic.name == "topic"
    for i, item in enumerate(topic.partition_responses):
        assert (item.index, item.error_code, item.base_offset) == (i, 2, 100 + i)
        assert item.log_append_time == 55
        assert item.log_start_offset == (44 if version >= 5 else -1)
        assert item.error_message == (message if version >= 8 else None)


def fetch_request() -> fetch_messages.FetchRequest:
    return fetch_messages.FetchRequest(
        replica_id=-1,
        max_wait=500,
        min_bytes=1,
        max_bytes=1000,
        isolation_level=1,
        session_id=5,
        session_epoch=6,
        topics=[
            fetch_messages.FetchTopic(
                topic="topic",
                topic_id=TOPIC_ID,
                partitions=[
                    fetch_messages.FetchPartition(
                        partition=i,
                        current_leader_epoch=3,
                        fetch_offset=40 + i,
                        last_fetched_epoch=2,
                        log_start_offset=1,
                        partition_max_bytes=77,
                    )
                    for i in range(200)
                ],
            )
        ],
        forgotten_topics_data=[
            fetch_messages.ForgottenTopic(topic="old", topic_id=TOPIC_ID, partitions=[1, 2])
        ],
        rack_id="rack",
    )


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_fetch_requests_are_read_as_the_schema_has_them(version: int) -> None:
    body = encoder(fetch_messages.FetchRequest, version)(fetch_request())
    buffer = bytearray(b"before" + body + b"after!")
    request = decode_fetch(version, buffer, memoryview(buffer), 6, 6 + len(body))

    assert (request.max_wait_ms, request.min_bytes, request.max_bytes) == (500, 1, 1000)
    assert request.isolation_level == 1
    assert (request.session_id, request.session_epoch) == ((5, 6) if version >= 7 else (0, -1))
    key = TOPIC_ID if version >= fetch_codec.FIRST_TOPIC_ID else b"topic"
    for i, item in enumerate(request.partitions):
        assert (item.key, item.partition_index, item.fetch_offset, item.max_bytes) == (
            key,
            i,
            40 + i,
            77,
        )
        assert item.current_leader_epoch == (3 if version >= 9 else -1)
        assert item.last_fetched_epoch == (2 if version >= 12 else -1)
    old = TOPIC_ID if version >= fetch_codec.FIRST_TOPIC_ID else b"old"
    assert request.forgotten == ([(old, 1), (old, 2)] if version >= 7 else [])
    assert request.rack == (b"rack" if version >= 11 else b"")
    assert [item.log_start_offset for item in request.partitions] == (
        [item.log_start_offset for item in fetch_request().topics[0].partitions]
        if version >= 5
        else [-1] * len(request.partitions)
    )


def records_of(content: bytes) -> bytes | FileSlice:
    """Return records as the handler has them when it encodes: few are read, many are not."""
    return content if len(content) <= SMALL_READ_BYTES else file_of(content)


def file_of(content: bytes) -> FileSlice:
    files = MemoryFiles()
    files.make_dirs("/d")
    file = files.open("/d/f", create=True, writable=True)
    file.pwritev([content], 0)
    return FileSlice(file, 0, len(content))


@pytest.mark.parametrize("version", FETCH_VERSIONS)
@pytest.mark.parametrize("size", [10, 100_000])
def test_fetch_responses_are_read_back_by_the_schema(version: int, size: int) -> None:
    by_id = version >= fetch_codec.FIRST_TOPIC_ID
    keys = [TOPIC_ID, bytes(16)] if by_id else [b"a", b"b"]
    content = random.Random(1).randbytes(size)
    data = [
        PartitionData(keys[0], 0, 0, 10, 9, 1, file_of(content)),
        PartitionData(keys[0], 1, 0, 10, 9, 1, None, (3, 8) if version >= 12 else None),
        PartitionData(keys[1], 0, 1, -1, -1, -1, None),
        PartitionData(keys[1], 5, 0, 3, 3, 0, file_of(b"tail")),
    ]
    rest = file_of(b"il")
    read: list[Records] = [records_of(content), None, None, FileSlices([file_of(b"ta"), rest], 4)]
    parts = encode_fetch_response(version, 42, 0, 7, data, read)
    assert rest in parts
    assert (len(parts) > 4) == (size > 32 * 1024)
    frame = b"".join(
        part if isinstance(part, bytes) else part.file.pread(part.length, part.position)
        for part in parts
    )

    assert int.from_bytes(frame[:4]) == len(frame) - 4
    correlation_id, position = decode_response_header(1, version, frame, 4, len(frame))
    response, end = decoder(fetch_messages.FetchResponse, version)(frame, position, len(frame))
    assert (correlation_id, end) == (42, len(frame))
    assert response.session_id == (7 if version >= 7 else 0)
    first, second = response.responses
    assert [item.partition_index for item in first.partitions] == [0, 1]
    assert [item.partition_index for item in second.partitions] == [0, 5]
    assert first.partitions[0].records == content
    assert first.partitions[0].high_watermark == 10
    assert first.partitions[0].log_start_offset == (1 if version >= 5 else -1)
    if version >= 12:
        assert first.partitions[1].diverging_epoch.epoch == 3
        assert first.partitions[1].diverging_epoch.end_offset == 8
    assert second.partitions[0].error_code == 1
    assert second.partitions[1].records == b"tail"


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_fetch_responses_are_encoded_in_steps_as_at_once(version: int) -> None:
    file = MemoryFiles().open("/f", create=True, writable=True)
    ranges = FileSlice(file, 0, SMALL_READ_BYTES + 1)
    data: list[PartitionData] = []
    read: list[Records] = []
    for number in range(350):
        diverging = (3, 8) if number == 7 else None
        key = TOPIC_IDS[0 if number < 250 else 200]
        data.append(PartitionData(key, number, number % 3, 10, 10, 1, None, diverging))
        read.append(ranges if number in (5, 100, 349) else b"tail" if number % 5 else None)
    read[100] = FileSlices([ranges, ranges], 2 * ranges.length)

    parts = run_to_end(encode_fetch_in_steps(version, 42, 7, data, read, 5))

    expected = encode_fetch_response(version, 42, 0, 7, data, read, 5)
    assert _joined(parts) == _joined(expected)


@pytest.mark.parametrize("version", FETCH_VERSIONS)
@pytest.mark.parametrize("count", [1, 3])
def test_no_file_is_read_while_a_fetch_response_is_encoded(
    version: int, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that fails then would leave half a response, and a slow one would hold the loop."""

    def refuse(*args: object) -> bytes:
        raise AssertionError("the encoder reads a file")

    slices = FileSlices([file_of(b"ab")] * 2, 4)
    records: list[Records] = [file_of(bytes(SMALL_READ_BYTES + 1)), slices, b"few"]
    read = records[:count]
    data = [PartitionData(TOPIC_ID, i, 0, 10, 10, 1, file_of(b"unread")) for i in range(count)]
    monkeypatch.setattr(type(file_of(b"").file), "pread", refuse)
    at_once = encode_fetch_response(version, 42, 0, 7, data, read)
    assert _joined(run_to_end(encode_fetch_in_steps(version, 42, 7, data, read, 0))) == _joined(
        at_once
    )


def _joined(parts: list[bytes | FileSlice]) -> list[bytes | FileSlice]:
    """Return the parts, with bytes that follow each other put together."""
    joined: list[bytes | FileSlice] = [b""]
    for part in parts:
        if isinstance(part, bytes) and isinstance(joined[-1], bytes):
            joined[-1] += part
        else:
            joined.append(part)
    return joined


@pytest.mark.parametrize("version", [3, 8, 9, 13])
def test_a_damaged_produce_request_is_only_ever_a_decode_error(version: int) -> None:
    body = encoder(produce_messages.ProduceRequest, version)(produce_request(version))
    _damage(body, lambda buffer, end: decoded(version, buffer, 0, end))


@pytest.mark.parametrize("version", [4, 7, 11, 12, 13, 18])
def test_a_damaged_fetch_request_is_only_ever_a_decode_error(version: int) -> None:
    body = encoder(fetch_messages.FetchRequest, version)(fetch_request())
    _damage(body, lambda buffer, end: decode_fetch(version, buffer, memoryview(buffer), 0, end))


def _damage(body: bytes, decode: object) -> None:
    chance = random.Random(7)
    assert callable(decode)
    for _ in range(2000):
        buffer = bytearray(body + chance.randbytes(64))
        for _ in range(chance.randrange(4)):
            buffer[chance.randrange(60)] = chance.choice((0, 1, 0x7F, 0x80, 0xFF))
        end = chance.randrange(len(body) + 1)
        try:
            decode(buffer, end)
        except (DecodeError, IndexError, struct.error, LargeRequest):
            continue
