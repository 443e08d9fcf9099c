"""Reads a Fetch response through a window: the fields of each partition, and its records in
pieces of whole batches.

The records of a partition may end in the middle of a batch. That batch is left out. For a batch
larger than the window the window grows, after a check that the response is that long.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, TypeVar

from ottla.client.connection import OpenResponse
from ottla.client.errors import check
from ottla.records.batch import LOG_OVERHEAD
from ottla.wire.codec import DecodeError, head_decoder
from ottla.wire.layout import is_flexible
from ottla.wire.message import Message
from ottla.wire.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from ottla.wire.primitives import skip_tags
from pyspark_ottla.decode import decode_loops as loops
from pyspark_ottla.fetch.window import Window

M = TypeVar("M", bound=Message)


class Piece(NamedTuple):
    """Whole batches. `next_offset` is the offset after the last of them.

    If `is_valid` is false, invalid bytes follow the batches, and this is the last piece. If
    the response has no whole batch, `needed_bytes` is how much to ask for in the next fetch.
    """

    records: memoryview
    next_offset: int
    is_valid: bool = True
    needed_bytes: int = 0


class FetchResponseReader:
    """Reads a response once, from start to end.

    A piece is valid until the next one is requested. Once the response `is_complete`, pieces
    are valid until the window is opened for another response.
    """

    def __init__(self, response: OpenResponse, window: Window) -> None:
        self._response = response
        self._window = window
        self._left = 0  # bytes of records of the current partition that are not read yet
        self.partition_count = 0  # how many partitions were read so far

    @property
    def is_complete(self) -> bool:
        """True if the whole response has been received."""
        return self._response.left == 0

    @property
    def has_records(self) -> bool:
        """True if the current partition has records that are not read yet."""
        return self._left > 0

    def partitions(self, purpose: str) -> Iterator[tuple[FetchableTopicResponse, PartitionData]]:
        """Yield the fields of each partition. Raise Refused if the broker refused the fetch."""
        window = self._window
        window.start = window.decode(lambda data, _, end: self._response.body(data, end))
        response, topics = self._head(FetchResponse, "responses")
        check(response.error_code, purpose)
        for _ in range(topics):
            topic, partitions = self._head(FetchableTopicResponse, "partitions")
            for _ in range(partitions):
                data, size = self._head(PartitionData, "records")
                if size > window.end - window.start + self._response.left:
                    error = DecodeError(f"records of length {size} are cut off")
                    raise self._response.not_understood(error)
                self._left = max(0, size)
                self.partition_count += 1
                yield topic, data
                self._skip(self._left)
                self._skip_tags()
            self._skip_tags()
        self._skip_tags()

    def pieces(self) -> Iterator[Piece]:
        """Yield the records of the current partition, the last one that `partitions` yielded."""
        window, size, needed = self._window, self._left, 0
        while self._left:
            start = window.start
            here = min(self._left, window.end - start)
            status, whole, next_offset = loops.walk(window.data, start, start + here)
            if status != loops.DONE:
                yield Piece(window.data[start : start + here].data, next_offset, is_valid=False)
                return
            if whole > start:
                self._skip(whole - start)
                yield Piece(window.data[start:whole].data, next_offset)
                size = 0
                continue
            length = window.data[start + 8 : start + 12]  # length field of the batch
            needed = (
                LOG_OVERHEAD + int.from_bytes(length, "big") if here >= loops.LEAST_BATCH else 0
            )
            if here == self._left or needed > self._left:
                break
            window.receive(needed)
        if size:
            yield Piece(memoryview(b""), -1, needed_bytes=max(2 * size, needed))

    def _head(self, part: type[M], up_to: str) -> tuple[M, int]:
        decode = head_decoder(FetchResponse, self._response.version, part, up_to)
        made, length, self._window.start = self._window.decode(decode)
        return made, length

    def _skip(self, size: int) -> None:
        window = self._window
        self._left -= size
        while size > window.end - window.start:
            size -= window.end - window.start
            window.start = window.end
            window.receive()
        window.start += size

    def _skip_tags(self) -> None:
        if is_flexible(FetchResponse, self._response.version):
            self._window.start = self._window.decode(skip_tags)
