"""Python's garbage collection waits while a large request is handled."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from weakref import ref

import pytest

from ottla.broker.handlers import SERVED
from ottla.server import garbage_collection
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


def test_what_a_large_request_leaves_is_set_aside_without_a_look(broker: Broker) -> None:
    pause = broker.node.pause_collection
    pause(True)
    kept = [[number] for number in range(2 * garbage_collection.COLLECT_AFTER)]
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


def test_garbage_that_was_set_aside_is_found_when_there_is_as_much_again(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    pause = broker.node.pause_collection
    monkeypatch.setattr(garbage_collection, "COLLECT_AFTER", 100)

    def leave(count: int) -> list[object]:
        pause(True)
        kept: list[object] = [[number] for number in range(count)]
        pause(False)
        return kept

    cycle = Cycle()
    found = ref(cycle)
    kept = leave(200)
    del cycle
    broker.pass_time(garbage_collection.CHECK_MS)
    gc.collect()
    assert found() is not None, "it is set aside"
    monkeypatch.setattr(garbage_collection, "MUCH_MS", 300 * garbage_collection.OBJECT_MS)
    kept += leave(200)
    broker.pass_time(garbage_collection.CHECK_MS)
    assert found() is None
    assert len(kept) == 400
    assert not is_looked_at(kept)


def test_what_was_set_aside_and_is_freed_does_not_lead_to_a_look_at_everything(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(garbage_collection, "MUCH_MS", 10_000 * garbage_collection.OBJECT_MS)
    cycle = Cycle()
    found = ref(cycle)
    del cycle
    for _ in range(5):
        broker.node.pause_collection(True)
        some = [[number] for number in range(20_000)]
        broker.node.pause_collection(False)
        del some
        broker.pass_time(garbage_collection.CHECK_MS)
    assert found() is not None
    broker.node.pause_collection(True)
    kept = [[number] for number in range(20_000)]
    broker.node.pause_collection(False)
    broker.pass_time(garbage_collection.CHECK_MS)
    assert found() is None
    assert len(kept) == 20_000


def test_a_look_at_everything_waits_for_a_quiet_minute_or_for_much_more(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(garbage_collection, "MUCH_MS", 10_000 * garbage_collection.OBJECT_MS)
    monkeypatch.setattr(garbage_collection, "BUSY_PER_SECOND", 0)
    client = broker.connect()
    kept: list[object] = []

    def finds_garbage(objects: int, *, is_busy: bool) -> bool:
        """Return True if garbage among so many objects is found within a minute."""
        broker.node.pause_collection(True)
        cycle = Cycle()
        found = ref(cycle)
        del cycle
        kept.extend([number] for number in range(objects))
        broker.node.pause_collection(False)
        if is_busy:
            client.send(MetadataRequest(topics=[]), 9)
            broker.node.settle()
        broker.pass_time(garbage_collection.CHECK_MS)
        return found() is None

    assert not finds_garbage(20_000, is_busy=True)
    assert finds_garbage(0, is_busy=False)
    assert not finds_garbage(20_000, is_busy=True)
    assert finds_garbage(40_000, is_busy=True)


def test_requests_that_never_cease(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(garbage_collection, "MOST_OBJECTS", 1000)
    pause = broker.node.pause_collection
    pause(True)
    gc.collect()
    objects = [[number] for number in range(2000)]
    collected = gc.get_stats()[2]["collections"]
    pause(True)
    assert gc.get_stats()[2]["collections"] == collected + 1
    assert len(objects) == 2000
    pause(False)
    pause(False)
