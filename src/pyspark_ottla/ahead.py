"""A thread that fetches ahead of the decoder, by a bounded amount.

States: running -> ended (all ranges covered, or an error that the reader gets) or stopped (the
reader wants no more). At most QUEUED responses wait for the reader; with the one it decodes and
the one that is received they are all the memory there is, and it is used again and again.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Final, NamedTuple

import numpy as np

from pyspark_ottla.compiled import Bytes
from pyspark_ottla.fetching import RangeFetcher
from pyspark_ottla.ranges import OffsetRange
from pyspark_ottla.read_settings import ReadSettings
from pyspark_ottla.section import Section

QUEUED: Final = 1
_KEPT: Final = QUEUED + 2
_KEPT_BYTES: Final = 64 << 20
_STOP_CHECK_S: Final = 0.05


class Frames:
    """Memory for responses, given out and taken back."""

    def __init__(self) -> None:
        self._free: list[Bytes] = []

    def take(self, size: int) -> Bytes:
        """At least `size` bytes."""
        while self._free:
            frame = self._free.pop()
            if len(frame) >= size:
                return frame
        return np.empty(size + size // 8, np.uint8)

    def give_back(self, frame: Bytes) -> None:
        if len(frame) <= _KEPT_BYTES and len(self._free) < _KEPT:
            self._free.append(frame)


_frames = Frames()  # of the process: tasks follow each other in it


class Fetched(NamedTuple):
    """What one response brought, and the memory it stands in."""

    sections: Sequence[Section]
    frame: Bytes


class FetchAhead:
    """Runs a RangeFetcher on a thread; iterate once, then close."""

    def __init__(self, ranges: Sequence[OffsetRange], settings: ReadSettings) -> None:
        self._ranges = ranges
        self._settings = settings
        self._queue: queue.Queue[Fetched | Exception | None] = queue.Queue(QUEUED)
        self._stopped = threading.Event()
        self._fetcher: RangeFetcher | None = None
        self._thread = threading.Thread(target=self._run, name="ottla-fetch", daemon=True)
        self._thread.start()

    def __iter__(self) -> Iterator[Sequence[Section]]:
        while (fetched := self._queue.get()) is not None:
            if isinstance(fetched, Exception):
                raise fetched
            yield fetched.sections
            _frames.give_back(fetched.frame)

    def close(self) -> None:
        """Stop fetching and wait until the thread has ended."""
        self._stopped.set()
        while self._thread.is_alive():
            if self._fetcher is not None:
                self._fetcher.interrupt()
            try:
                self._queue.get_nowait()
            except queue.Empty:
                self._thread.join(_STOP_CHECK_S)

    def _run(self) -> None:
        try:
            with self._settings.client.connect() as client:
                self._fetcher = RangeFetcher(client, self._ranges, self._settings)
                with closing(self._fetcher):
                    self._fetch(self._fetcher)
            self._queue.put(None)
        except Exception as error:  # whatever it is, the reader's thread raises it
            self._queue.put(error)

    def _fetch(self, fetcher: RangeFetcher) -> None:
        while not fetcher.done and not self._stopped.is_set():
            frame: Bytes | None = None

            def room(size: int) -> memoryview:
                nonlocal frame
                frame = _frames.take(size)
                return frame[:size].data

            sections = fetcher.poll(room)
            if sections:
                assert frame is not None
                self._queue.put(Fetched(sections, frame))
            elif frame is not None:
                _frames.give_back(frame)
