"""The cache of remote objects: shared reads, read-ahead, limits and failures."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from ottla.log.state.leader_epochs import EpochEntry
from ottla.ports import ObjectStoreError
from ottla.sim.object_store import SimObjectStore, StoreFaults
from ottla.testing.fakes import QueuedBackground
from ottla.tiered.layout import INDEX, LOG
from ottla.tiered.metadata_records import RemotePartition, SegmentMetadata
from ottla.tiered.not_cached import NotCached
from ottla.tiered.object_cache import CHUNK_BYTES, READ_AHEAD, ObjectCache, ReadLimits
from ottla.tiered.segment_upload import key_of

LIMITS = ReadLimits(10, 100, 100 * CHUNK_BYTES)
SIZE = 7 * CHUNK_BYTES + 100
SEGMENT = SegmentMetadata(
    RemotePartition("t", b"t" * 16, 0), b"s" * 16, 0, 9, 0, 1, 0, (EpochEntry(0, 0),), SIZE
)


class Host:
    """Time that stands still, and a limit."""

    def __init__(self) -> None:
        self.time_ms = 0.0
        self.wait_ms = 0.0
        self.read = 0
        self.timers: list[Callable[[], None]] = []

    def now_ms(self) -> float:
        return self.time_ms

    def later(self, delay_ms: float, action: Callable[[], None]) -> None:
        self.timers.append(action)

    def read_wait_ms(self) -> float:
        return self.wait_ms

    def read_failed(self) -> None:
        pass

    def charge_read(self, size: int) -> None:
        self.read += size


class Case:
    def __init__(self, limits: ReadLimits = LIMITS) -> None:
        self.background = QueuedBackground()
        self.store = SimObjectStore(self.background, Random(1))
        self.host = Host()
        self.cache = ObjectCache(self.store, self.host, limits)
        self.store.objects[key_of(SEGMENT, LOG)] = bytes(SIZE)
        self.store.objects[key_of(SEGMENT, INDEX)] = b"index"
        self.arrived = 0

    def ask(self, number: int) -> None:
        with pytest.raises(NotCached) as missing:
            self.cache.chunk(SEGMENT, number)
        missing.value.then(self.count)

    def count(self) -> None:
        self.arrived += 1


def test_readers_of_the_same_chunk_share_one_read() -> None:
    case = Case()
    case.ask(0)
    case.ask(0)
    assert len(case.background.waiting) == 1 + READ_AHEAD
    case.background.run()
    assert case.arrived == 2
    assert case.cache.chunk(SEGMENT, 0).length == CHUNK_BYTES
    assert case.cache.has_chunk(SEGMENT, READ_AHEAD) is not None
    assert case.host.read == (1 + READ_AHEAD) * CHUNK_BYTES


def test_the_last_chunk_is_shorter() -> None:
    case = Case()
    case.ask(7)
    case.background.run()
    assert case.cache.chunk(SEGMENT, 7).length == 100


def test_other_objects_are_read_as_a_whole() -> None:
    case = Case()
    with pytest.raises(NotCached):
        case.cache.whole(SEGMENT, INDEX)
    case.background.run()
    assert case.cache.whole(SEGMENT, INDEX) == b"index"


def test_only_so_many_reads_run_and_wait() -> None:
    case = Case(ReadLimits(2, 1, 100 * CHUNK_BYTES))
    case.ask(0)
    assert len(case.background.waiting) == 2
    case.ask(7)  # nobody reads it: too many wait
    case.background.run()
    assert case.arrived == 1
    case.ask(7)
    case.background.run()
    assert case.arrived == 2


def test_what_was_not_used_for_longest_goes() -> None:
    case = Case(ReadLimits(10, 100, 3 * CHUNK_BYTES))
    for number in (0, 7):
        case.ask(number)
        case.background.run()
    assert case.cache.size <= 3 * CHUNK_BYTES
    assert case.cache.has_chunk(SEGMENT, 7) is not None
    assert case.cache.has_chunk(SEGMENT, 0) is None
    case.cache.forget(SEGMENT.segment_id)
    assert case.cache.size == 0


def test_a_failure_is_told_for_a_moment_and_then_tried_again() -> None:
    case = Case()
    case.store.faults = StoreFaults(unavailable=1.0)
    case.ask(0)
    case.background.run()
    assert case.arrived == 1
    with pytest.raises(ObjectStoreError, match="on purpose"):
        case.cache.chunk(SEGMENT, 0)
    case.store.faults = StoreFaults()
    case.host.time_ms = 1000.0
    case.ask(0)
    case.background.run()
    assert case.cache.chunk(SEGMENT, 0)


def test_a_log_that_is_too_short_is_an_error() -> None:
    case = Case()
    case.store.objects[key_of(SEGMENT, LOG)] = bytes(10)
    case.ask(0)
    case.background.run()
    with pytest.raises(ObjectStoreError, match="has 10 bytes"):
        case.cache.chunk(SEGMENT, 0)


def test_reads_hold_their_rate() -> None:
    case = Case()
    case.host.wait_ms = 50.0
    case.ask(0)
    assert not case.background.waiting
    case.host.wait_ms = 0.0
    (go_on,) = case.host.timers
    go_on()
    case.background.run()
    assert case.arrived == 1
