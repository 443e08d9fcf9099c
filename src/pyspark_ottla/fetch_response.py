"""Reads the response to a Fetch through a window: what it says of each partition, and its
records in pieces of whole batches.

A partition's records may end in the middle of a batch, which is left out. A batch that is larger
than the window gets a larger one, after its length was compared with what the response holds.
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
from pyspark_ottla import loops
from pyspark_ottla.window import Window

M = TypeVar("M", bound=Message)


class Piece(NamedTuple):
    """Whole batches that reach up to the offset `reached`.

    Where `is_sound` is false, something that is no batch follows them, and no piece after it.
    Where there is no whole batch at all, `cut` says for how many bytes to ask.
    """

    records: memoryview
    reached: int
    is_sound: bool = True
    cut: int = 0


class FetchResponseReader:
    """Goes through a response once.

    A piece is good until the next one is asked for or, once the response `is_here`, until the
    window is opened for another.
    """

    def __init__(self, response: OpenResponse, window: Window) -> None:
        self._response = response
        self._window = window
        self._left = 0  # of the records of the partition that is gone through
        self.answers = 0  # how many partitions it has spoken of

    @property
    def is_here(self) -> bool:
        """Whether all of the response has been received."""
        return self._response.left == 0

    @property
    def has_records(self) -> bool:
        """Whether the partition that `partitions` just gave has any that were not gone through."""
        return self._left > 0

    def partitions(self, purpose: str) -> Iterator[tuple[FetchableTopicResponse, PartitionData]]:
        """What is said of each partition; Refused for `purpose` if the whole fetch was."""
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
                self.answers += 1
                yield topic, data
                self._skip(self._left)
                self._skip_tags()
            self._skip_tags()
        self._skip_tags()

    def pieces(self) -> Iterator[Piece]:
        """The records of the partition that `partitions` just gave; none if it has none."""
        window, size, needed = self._window, self._left, 0
        while self._left:
            start = window.start
            here = min(self._left, window.end - start)
            status, whole, reached = loops.walk(window.data, start, start + here)
            if status != loops.DONE:
                yield Piece(window.data[start : start + here].data, reached, is_sound=False)
                return
            if whole > start:
                self._skip(whole - start)
                yield Piece(window.data[start:whole].data, reached)
                size = 0
                continue
            length = window.data[start + 8 : start + 12]  # of the batch, once that can be judged
            needed = (
                LOG_OVERHEAD + int.from_bytes(length, "big") if here >= loops.LEAST_BATCH else 0
            )
            if here == self._left or needed > self._left:
                break
            window.receive(needed)
        if size:
            yield Piece(memoryview(b""), -1, cut=max(2 * size, needed))

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
