"""Fetch responses read through windows of all sizes: the result is the same as without a window."""

from __future__ import annotations

import contextlib
import random
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.client.connection import OpenResponse
from ottla.client.deadline import Deadline
from ottla.client.errors import ProtocolViolation, Refused
from ottla.model.errors import ErrorCode
from ottla.ports import Buffer
from ottla.records.record import build_batch
from ottla.wire.codec import DecodeError, decoder, encoder
from ottla.wire.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchResponse,
    NodeEndpoint,
    PartitionData,
)
from pyspark_ottla.fetch.fetch_response import FetchResponseReader
from pyspark_ottla.fetch.window import Window

VERSIONS = range(FetchResponse.MIN_VERSION, FetchResponse.MAX_VERSION + 1)
Found = list[tuple[FetchableTopicResponse, PartitionData, bytes, list[int], int]]


class Arriving:
    """A response whose bytes arrive in pieces of random sizes."""

    def __init__(self, data: bytes, version: int, seed: int = 0) -> None:
        self.version = version
        self._data = memoryview(data)
        self._sizes = random.Random(seed)

    @property
    def left(self) -> int:
        return len(self._data)

    def read_some(self, view: memoryview, deadline: Deadline) -> int:
        size = min(len(view), self._sizes.randint(1, 200), len(self._data))
        assert size > 0, "nothing is left, or there is no room"
        view[:size] = self._data[:size]
        self._data = self._data[size:]
        return size

    def body(self, buffer: Buffer, end: int) -> int:
        if end < 4:
            raise DecodeError("is cut off")
        return 4

    def not_understood(self, error: DecodeError) -> ProtocolViolation:
        return ProtocolViolation(str(error))


def start(data: bytes, version: int, window: Window, seed: int = 0) -> FetchResponseReader:
    response = cast(OpenResponse, Arriving(b"\0\0\0\1" + data, version, seed))
    window.open(response, lambda: Deadline(1000, "reading"))
    return FetchResponseReader(response, window)


def go_through(reader: FetchResponseReader) -> Found:
    found: Found = []
    for topic, answer in reader.partitions("fetching"):
        pieces = [(bytes(p.records), p.next_offset, p.needed_bytes) for p in reader.pieces()]
        records = b"".join(piece[0] for piece in pieces)
        reached = [piece[1] for piece in pieces]
        found.append((topic, answer, records, reached, sum(piece[2] for piece in pieces)))
    return found


def read(data: bytes, version: int, window_bytes: int, seed: int = 0) -> Found:
    window = Window(window_bytes)
    reader = start(data, version, window, seed)
    found = go_through(reader)
    assert reader.is_complete
    assert reader.partition_count == len(found)
    assert window.start == window.end
    return found


def answering(*data: PartitionData) -> bytes:
    topic = FetchableTopicResponse(topic_id=b"%16d" % 1, partitions=list(data))
    return encoder(FetchResponse, 17)(FetchResponse(responses=[topic]))


def batch(base: int, value_bytes: int) -> bytes:
    records = [(None, bytes(value_bytes), 0, ()) for _ in range(3)]
    return bytes(build_batch(records, base_offset=base))


partitions = st.builds(
    lambda index, sizes, cut, aborted, diverges: (
        PartitionData(
            partition_index=index,
            high_watermark=index + 7,
            aborted_transactions=aborted,
            diverging_epoch=EpochEndOffset(epoch=3 if diverges else -1),
            records=b"".join(batch(3 * n, size) for n, size in enumerate(sizes))
            + batch(3 * len(sizes), 50)[:cut],
        ),
        len(sizes),
        cut,
    ),
    st.integers(0, 1000),
    st.lists(st.integers(0, 400), max_size=5),
    st.integers(0, 100),
    st.none()
    | st.lists(
        st.builds(AbortedTransaction, producer_id=st.integers(0, 9), first_offset=st.just(4)),
        max_size=9,
    ),
    st.booleans(),
)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.lists(partitions, max_size=4), max_size=3),
    st.sampled_from(VERSIONS),
    st.integers(1, 3000),
    st.integers(0, 1 << 30),
)
def test_a_window_of_any_size_shows_what_the_whole_shows(
    topics: list[list[tuple[PartitionData, int, int]]], version: int, window: int, seed: int
) -> None:
    response = FetchResponse(
        responses=[
            FetchableTopicResponse(
                topic=f"t{n}" if version < 13 else "",
                topic_id=bytes(16) if version < 13 else b"%16d" % n,
                partitions=[_as_of(version, data) for data, _, _ in topic],
            )
            for n, topic in enumerate(topics)
        ],
        node_endpoints=[NodeEndpoint(node_id=1, host="h" * 50)] if version >= 16 else [],
    )
    found = read(encoder(FetchResponse, version)(response), version, window, seed)
    expected = [(topic, data) for topic in response.responses for data in topic.partitions]
    assert len(found) == len(expected)
    facts = [fact for topic in topics for fact in topic]
    for made, (topic, data), (_, batches, cut) in zip(found, expected, facts, strict=True):
        of, answer, records, reached, wanted = made
        assert (of.topic, of.topic_id) == (topic.topic, topic.topic_id)
        assert answer.partition_index == data.partition_index
        assert answer.high_watermark == data.high_watermark
        assert answer.aborted_transactions == data.aborted_transactions
        whole = data.records or b""
        assert records == whole[: len(whole) - cut]
        if batches:
            assert reached[-1] == 3 * batches
            assert reached == sorted(set(reached))
            assert wanted == 0
        else:
            assert bool(wanted) == bool(cut)
            assert wanted in (0, 2 * cut, len(batch(0, 50)))


def _as_of(version: int, data: PartitionData) -> PartitionData:
    if version < 12:
        data.diverging_epoch = EpochEndOffset()
    return data


def test_a_refusal_of_the_whole_fetch() -> None:
    refused = FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    with pytest.raises(Refused, match="fetching: FETCH_SESSION_ID_NOT_FOUND"):
        read(encoder(FetchResponse, 17)(refused), 17, 100)


LARGE = answering(PartitionData(records=b"".join(batch(3 * n, 300) for n in range(10))))


@pytest.mark.parametrize("end", [0, 3, 20, 60, 70, 500, -1])
def test_a_response_that_ends_too_early(end: int) -> None:
    with pytest.raises(ProtocolViolation, match="cut off"):
        read(LARGE[:end], 17, 1000)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_bytes_that_are_something_else(data: st.DataObject) -> None:
    """Check that other bytes give an error or other contents, within the memory of the response."""
    whole = bytearray(LARGE)
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, 120))] = data.draw(st.integers(0, 255))
    window = Window(200)
    with contextlib.suppress(ProtocolViolation, Refused):
        go_through(start(bytes(whole), 17, window))
    assert len(window.data) <= 2 * len(whole)


def test_what_is_no_batch_ends_the_records_of_its_partition_only() -> None:
    bad, good = batch(0, 10) + b"\xff" * 200, batch(0, 10)
    reader = start(answering(PartitionData(records=bad), PartitionData(records=good)), 17, Window())
    sound = [[piece.is_valid for piece in reader.pieces()] for _ in reader.partitions("")]
    assert sound == [[False], [True]]


def test_records_that_nobody_looks_at_are_passed_over() -> None:
    reader = start(LARGE, 17, Window(100))
    assert len(list(reader.partitions(""))) == 1
    assert reader.is_complete


def test_a_batch_larger_than_the_window_and_the_memory_after_it() -> None:
    records = batch(0, 5000) + batch(3, 10)
    window = Window(100)
    for _ in range(2):
        reader = start(answering(PartitionData(records=records)), 17, window)
        assert len(window.data) == 100
        ((_, _, found, _, _),) = go_through(reader)
        assert found == records
        assert len(window.data) < 2 * len(records)


def test_the_same_as_the_decoder_of_whole_messages() -> None:
    whole = decoder(FetchResponse, 17)(LARGE, 0, len(LARGE))[0]
    ((_, answer, records, _, _),) = read(LARGE, 17, 700)
    answer.records = records
    assert answer == whole.responses[0].partitions[0]
