"""Python's garbage collection waits while a large request is handled."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from errno import ENOMEM
from typing import ClassVar
from weakref import ref

import pytest

from ottla.broker.handlers import SERVED
from ottla.server import garbage_collection, garbage_search
from ottla.server.garbage_collection import GarbageCollection
from ottla.wire.api_table import ApiKey
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.support.broker import Broker

LARGE = OffsetCommitRequest(
    group_id="g",
    generation_id_or_member_epoch=-1,
    topics=[
        OffsetCommitRequestTopic(
            name="t",
            partitions=[OffsetCommitRequestPartition(partition_index=i) for i in range(3000)],
        )
    ],
)


@pytest.fixture
def broker() -> Iterator[Broker]:
    made = Broker()
    made.node.sliced_work.slice_ms = 0  # a step in each wake-up
    collection = GarbageCollection(made.node)
    yield made
    collection.close()


def test_it_goes_on_after_the_request(broker: Broker) -> None:
    assert SERVED[ApiKey.OFFSET_COMMIT].most_items == 1_000_000
    client = broker.connect()
    client.send(OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=-1), 9)
    while not client.ids():
        broker.pass_time(1)  # imports what the next one needs
    client.send(LARGE, 9)
    broker.node.settle()
    broker.pass_time(1)
    assert not gc.isenabled()
    while not client.connection.out or len(broker.node.sliced_work):
        broker.pass_time(1)
    assert gc.isenabled()


def test_it_goes_on_after_a_client_that_leaves(broker: Broker) -> None:
    client = broker.connect()
    client.send(MetadataRequest(topics=[MetadataRequestTopic(name="a-topic")] * 5000), 9)
    broker.node.settle()
    broker.pass_time(1)
    assert not gc.isenabled()
    client.connection.abandon()
    broker.pass_time(1)
    assert gc.isenabled()


def test_pauses_are_counted(broker: Broker) -> None:
    pause = broker.node.pause_collection
    pause(True)
    pause(True)
    pause(False)
    assert not gc.isenabled()
    pause(False)
    assert gc.isenabled()


def is_looked_at(found: object) -> bool:
    """Return True if a collection of all objects looks at this one: it is not frozen."""
    return any(each is found for each in gc.get_objects())


def test_what_a_long_collection_leaves_is_not_looked_at_again(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[object] = [[]]
    gc.collect()
    assert is_looked_at(kept)  # with this clock it took no time
    monkeypatch.setattr(garbage_collection, "LONG_MS", -1.0)
    gc.collect(1)
    assert is_looked_at(kept)
    gc.collect()
    assert not is_looked_at(kept)
    more: list[object] = [[]]
    assert is_looked_at(more)
    gc.collect()
    assert not is_looked_at(more)


@pytest.mark.parametrize("count", [10, 2 * garbage_collection.COLLECT_AFTER])
def test_what_a_large_request_leaves_is_set_aside_without_a_look(
    broker: Broker, count: int
) -> None:
    pause = broker.node.pause_collection
    pause(True)
    kept = [[number] for number in range(count)]
    looks = [each["collections"] for each in gc.get_stats()]
    pause(False)
    fresh: list[object] = [[]]
    assert not is_looked_at(kept)
    assert is_looked_at(fresh)
    assert [each["collections"] for each in gc.get_stats()] == looks


class Cycle:
    """An object that only a collection frees."""

    def __init__(self) -> None:
        self.itself = self


class FoundGarbage:
    """A search that ends at once. It is told what it finds."""

    result_of_all = True
    least: ClassVar[list[int]] = []

    def __init__(self, least: int) -> None:
        self.least.append(least)

    def result(self) -> bool:
        return self.result_of_all

    def end(self) -> None:
        """End the search."""


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return what searches were asked for; they find much, and little memory is much."""
    monkeypatch.setattr(garbage_search, "GarbageSearch", FoundGarbage)
    monkeypatch.setattr(FoundGarbage, "result_of_all", True)
    monkeypatch.setattr(FoundGarbage, "least", [])
    return FoundGarbage.least


@pytest.fixture
def few_blocks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Say how many blocks of memory are in use."""
    blocks = [1_000_000]
    monkeypatch.setattr(sys, "getallocatedblocks", lambda: blocks[0])
    return blocks


def set_aside_a_cycle(broker: Broker) -> ref[Cycle]:
    broker.node.pause_collection(True)
    cycle = Cycle()
    kept = [[number] for number in range(2 * garbage_collection.COLLECT_AFTER)]
    broker.node.pause_collection(False)
    assert kept
    return ref(cycle)


def check(broker: Broker) -> None:
    """Let the check of a minute, and a search, end."""
    broker.pass_time(garbage_collection.CHECK_MS)
    broker.pass_time(garbage_collection.SEARCH_MS)


def test_garbage_that_was_set_aside_is_freed_if_a_search_finds_much(
    few_blocks: list[int], searches: list[int], broker: Broker
) -> None:
    found = set_aside_a_cycle(broker)
    few_blocks[0] = 1_900_000
    check(broker)
    assert searches == [], "there is not twice as much as before"
    few_blocks[0] = 2_000_000
    check(broker)
    assert searches == [2_000_000 // garbage_collection.PART]
    assert found() is not None
    check(broker)
    assert found() is None
    assert "unused objects in cycles" in broker.reports[-1]


def test_nothing_is_looked_at_if_a_search_finds_little(
    few_blocks: list[int],
    searches: list[int],
    broker: Broker,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(FoundGarbage, "result_of_all", False)
    found = set_aside_a_cycle(broker)
    for blocks in (2_000_000, 3_900_000, 1_000_000, 4_000_000):
        few_blocks[0] = blocks
        check(broker)
        check(broker)
    assert len(searches) == 2
    assert found() is not None


def test_a_look_at_everything_waits_for_a_quiet_minute_or_for_much_more(
    few_blocks: list[int],
    searches: list[int],
    broker: Broker,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(garbage_collection, "BUSY_PER_SECOND", 0)
    client = broker.connect()

    def busy_check() -> None:
        client.send(MetadataRequest(topics=[]), 9)
        broker.node.settle()
        check(broker)

    found = set_aside_a_cycle(broker)
    few_blocks[0] = 2_000_000
    busy_check()
    assert searches
    busy_check()
    assert found() is not None
    check(broker)
    assert found() is None
    found = set_aside_a_cycle(broker)
    few_blocks[0] = 4_000_000
    busy_check()
    busy_check()
    assert found() is not None
    few_blocks[0] = 8_000_000
    busy_check()
    assert found() is None


def test_a_search_that_cannot_begin_is_tried_again(
    few_blocks: list[int], broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(least: int) -> None:
        raise OSError(ENOMEM, "no memory")

    few_blocks[0] = 2_000_000
    monkeypatch.setattr(garbage_search, "GarbageSearch", fail)
    check(broker)
    assert broker.reports[-1] == "cannot search for unused memory: no memory"
    monkeypatch.setattr(garbage_search, "GarbageSearch", FoundGarbage)
    found = set_aside_a_cycle(broker)
    check(broker)
    check(broker)
    assert found() is None


def test_a_search_that_never_ends_is_ended(
    few_blocks: list[int],
    searches: list[int],
    broker: Broker,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(FoundGarbage, "result_of_all", None)
    ended: list[None] = []
    monkeypatch.setattr(FoundGarbage, "end", lambda self: ended.append(None))
    few_blocks[0] = 2_000_000
    check(broker)
    broker.pass_time(garbage_collection.LONGEST_SEARCH_MS // 2)
    assert not ended
    broker.pass_time(garbage_collection.LONGEST_SEARCH_MS)
    assert ended
    few_blocks[0] = 4_000_000
    check(broker)
    assert len(searches) == 2


def test_requests_that_never_cease_lead_to_no_long_collection(broker: Broker) -> None:
    pause = broker.node.pause_collection
    pause(True)
    gc.collect()
    objects = [[number] for number in range(2 * garbage_collection.COLLECT_AFTER)]
    looks = [each["collections"] for each in gc.get_stats()]
    for _ in range(3):
        pause(True)
        pause(False)
    assert [each["collections"] for each in gc.get_stats()] == looks
    pause(False)
    assert not is_looked_at(objects)
