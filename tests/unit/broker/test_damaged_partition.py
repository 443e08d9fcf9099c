"""A partition whose log is damaged: its requests get KAFKA_STORAGE_ERROR, the broker lives."""

from __future__ import annotations

import pytest

from ottla.log.file_names import INDEX, LOG
from ottla.model.errors import ErrorCode
from ottla.wire.message import Message
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from tests.support.broker import Broker, Client, produce


def list_offsets(topic: str, timestamp: int) -> Message:
    asked = ListOffsetsPartition(partition_index=0, current_leader_epoch=-1, timestamp=timestamp)
    return ListOffsetsRequest(
        replica_id=-1,
        isolation_level=0,
        topics=[ListOffsetsTopic(name=topic, partitions=[asked])],
    )


def fetch(topic: str) -> Message:
    asked = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    return FetchRequest(
        max_wait=0,
        min_bytes=1,
        max_bytes=1000,
        isolation_level=0,
        session_id=0,
        session_epoch=-1,
        topics=[FetchTopic(topic=topic, partitions=[asked])],
    )


def ask(client: Client, request: Message, version: int | None = None) -> ErrorCode:
    """Return the error code of the only partition in the answer."""
    answer = client.ask(request, version)
    topics = getattr(answer, "responses", None) or answer.topics
    name = "partition_responses" if hasattr(topics[0], "partition_responses") else "partitions"
    return ErrorCode(getattr(topics[0], name)[0].error_code)


@pytest.fixture
def broker() -> Broker:
    """Return a broker with the topics `good` and `bad`: the closed segment of `bad` is damaged."""
    broker = Broker()
    client = broker.connect()
    for name in ("bad", "good"):
        partition = broker.topic(name)
        assert ask(client, produce(name), 12) == ErrorCode.NONE
        log = partition.online_log()
        log.roll(broker.node.wall_ms)
        assert ask(client, produce(name), 12) == ErrorCode.NONE
        if name == "bad":
            segment = log.segments[0]
            segment.forget_indexes()
            log.active_segment.forget_recent()  # as when the log was idle for a while
            files = broker.node.ports.files
            files.unlink(segment.path(INDEX))
            files.open(segment.path(LOG), writable=True).pwritev([b"\x77"], 16)
    return broker


@pytest.mark.parametrize(
    "found_by",
    ["fetch", "list offsets by time", "list offsets with the largest timestamp", "retention"],
)
def test_a_damaged_partition_goes_offline_and_the_broker_lives(
    broker: Broker, found_by: str
) -> None:
    client = broker.connect()
    bad = broker.node.topics.partition_named("bad", 0).online_log()
    match found_by:
        case "fetch":
            assert ask(client, fetch("bad"), 12) == ErrorCode.KAFKA_STORAGE_ERROR
        case "list offsets by time":
            assert ask(client, list_offsets("bad", 1)) == ErrorCode.KAFKA_STORAGE_ERROR
        case "list offsets with the largest timestamp":
            bad.segments[0].set_max_timestamp(2**60, 0)
            assert ask(client, list_offsets("bad", -3)) == ErrorCode.KAFKA_STORAGE_ERROR
        case "retention":
            bad.segments[0].set_max_timestamp(-2, 0)  # not known, as after a start
            for _ in range(3):
                broker.pass_time(600_000)
    for request, version in ((fetch("bad"), 12), (list_offsets("bad", 1), None)):
        assert ask(client, request, version) == ErrorCode.KAFKA_STORAGE_ERROR
    assert ask(client, produce("bad"), 12) == ErrorCode.KAFKA_STORAGE_ERROR
    assert ask(client, produce("good"), 12) == ErrorCode.NONE
    assert ask(client, fetch("good"), 12) == ErrorCode.NONE
    assert ask(client, list_offsets("good", 1)) == ErrorCode.NONE
    assert not broker.node.store.offline_dirs
    said = [text for text in broker.reports if "bad-0 is offline" in text]
    assert len(said) == 1
    assert "restore /data/bad-0 from a copy" in said[0]
    broker.node.shutdown()
