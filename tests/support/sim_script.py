"""What scripted runs ask a broker for, in short."""

from __future__ import annotations

from typing import Any

from ottla.records.batch import scan
from ottla.records.record import build_batch, records_of
from ottla.sim.model.batch import Producer
from ottla.sim.network.exchange import Exchange
from ottla.sim.script import Script
from ottla.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from ottla.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from ottla.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

TOPIC = "t"
EARLIEST = -2
FETCH_VERSION = 11
LIST_OFFSETS_VERSION = 5
PRODUCE_VERSION = 8


def create_topic(script: Script, partitions: int = 1, *, name: str = TOPIC, **configs: str) -> None:
    """Have the topic; `flush_ms` is flush.ms."""
    topic = CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=1,
        configs=[
            CreatableTopicConfig(name=setting.replace("_", "."), value=value)
            for setting, value in configs.items()
        ],
    )
    reply = script.ask(CreateTopicsRequest(topics=[topic], timeout=1000), 4)
    assert isinstance(reply, CreateTopicsResponse)
    assert [each.error_code for each in reply.topics] == [0]


def delete_topic(script: Script) -> None:
    """Have the topic no more."""
    reply = script.ask(DeleteTopicsRequest(topic_names=[TOPIC], timeout=1000), 3)
    assert isinstance(reply, DeleteTopicsResponse)
    assert [each.error_code for each in reply.responses] == [0]


def produce_request(
    script: Script, value: bytes, *, partition: int = 0, producer: Producer | None = None
) -> ProduceRequest:
    """Return a request with one record."""
    producer_id, epoch, sequence = producer or Producer()
    now_ms = script.machine.clock.wall_ms()
    batch = build_batch(
        [(None, value, now_ms, ())],
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
    )
    data = PartitionProduceData(index=partition, records=bytes(batch))
    topic = TopicProduceData(name=TOPIC, partition_data=[data])
    return ProduceRequest(acks=-1, timeout=1000, topic_data=[topic])


def answer_of(exchange: Exchange) -> PartitionProduceResponse:
    """Return what became of the batch of a request."""
    reply = exchange.reply
    assert isinstance(reply, ProduceResponse)
    return reply.responses[0].partition_responses[0]


def produce(
    script: Script, value: bytes, *, partition: int = 0, producer: Producer | None = None
) -> PartitionProduceResponse:
    """Return the answer to a request with one record."""
    request = produce_request(script, value, partition=partition, producer=producer)
    reply = script.ask(request, PRODUCE_VERSION)
    assert isinstance(reply, ProduceResponse)
    return reply.responses[0].partition_responses[0]


def fetch_request(partitions: list[int], **fields: Any) -> FetchRequest:
    """Return a Fetch of the partitions from their beginning, in this order, without waiting."""
    topic = FetchTopic(
        topic=TOPIC,
        partitions=[
            FetchPartition(partition=partition, partition_max_bytes=1 << 20)
            for partition in partitions
        ],
    )
    settings: dict[str, Any] = {
        "max_wait": 0,
        "min_bytes": 0,
        "max_bytes": 1 << 20,
        "session_epoch": -1,
    }
    return FetchRequest(topics=[topic], **{**settings, **fields})


def fetched(reply: object) -> dict[int, int | list[bytes | None]]:
    """Return the records, or the error, of each partition that was answered for."""
    assert isinstance(reply, FetchResponse)
    return {
        data.partition_index: data.error_code or _values(data.records or b"")
        for topic in reply.responses
        for data in topic.partitions
    }


def _values(data: bytes) -> list[bytes | None]:
    return [
        record.value
        for batch in scan(data, 0, len(data))
        for record in records_of(data[batch.position : batch.end])
    ]


def read(script: Script, partition: int = 0) -> int | list[bytes | None]:
    """Return all records of a partition, or its error."""
    return fetched(script.ask(fetch_request([partition]), FETCH_VERSION))[partition]


def log_start(script: Script, partition: int = 0) -> int:
    """Return the log start offset of a partition."""
    asked = ListOffsetsPartition(partition_index=partition, timestamp=EARLIEST)
    request = ListOffsetsRequest(topics=[ListOffsetsTopic(name=TOPIC, partitions=[asked])])
    reply = script.ask(request, LIST_OFFSETS_VERSION)
    assert isinstance(reply, ListOffsetsResponse)
    return reply.topics[0].partitions[0].offset
