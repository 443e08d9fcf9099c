"""Clients cannot write to the topics that the broker itself writes to."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ottla.broker.node import Node
from ottla.model.errors import ErrorCode
from ottla.model.ids import OFFSETS_TOPIC
from ottla.records.record import build_batch
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)


@pytest.mark.parametrize("version", [9, 13])
def test_a_client_cannot_write_group_records(
    node: Node, ask: Callable[..., object], version: int
) -> None:
    ask(FindCoordinatorRequest(coordinator_keys=["g"]))
    partition = node.topics.partition_named(OFFSETS_TOPIC, 0)
    end = partition.online_log().log_end_offset
    data = TopicProduceData(
        name=OFFSETS_TOPIC,
        topic_id=partition.topic.topic_id,
        partition_data=[PartitionProduceData(records=bytes(build_batch([(b"k", b"v", 0, ())])))],
    )
    response = ask(ProduceRequest(acks=-1, timeout=1000, topic_data=[data]), version)
    assert isinstance(response, ProduceResponse)
    found = response.responses[0].partition_responses[0]
    assert found.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert found.error_message == f"Cannot append to internal topic {OFFSETS_TOPIC}"
    assert partition.online_log().log_end_offset == end
