"""Hostile responses make the client raise an error. It does not crash, hang or use much memory."""

from __future__ import annotations

import random
from contextlib import closing, suppress

import pytest

from ottla.client import cluster as client_module
from ottla.client.address import Address
from ottla.client.cluster import Client
from ottla.client.consumer.consumer import Consumer, start_offsets
from ottla.client.errors import ClientError
from ottla.client.producer.producer import Producer
from ottla.client.topics.topics import create_topics, describe_topics, list_topics
from ottla.records.record import build_batch
from ottla.wire.api_table import ApiKey
from ottla.wire.messages.create_topics import CreatableTopicResult, CreateTopicsResponse
from ottla.wire.messages.describe_configs import DescribeConfigsResponse, DescribeConfigsResult
from ottla.wire.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from ottla.wire.messages.init_producer_id import InitProducerIdResponse
from ottla.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.wire.messages.metadata import MetadataResponse, MetadataResponseBroker
from ottla.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from tests.support.scripted_broker import Connect, FakeBroker

TOPIC_ID = b"0123456789abcdef"
SEEDS = range(120)


@pytest.fixture
def broker(fake_broker: FakeBroker) -> FakeBroker:
    batch = bytes(build_batch([(b"k", b"v", 0, [("h", b"x")])]))
    fake_broker.add_topic("t", 2)
    fake_broker.handlers |= {
        ApiKey.CREATE_TOPICS: lambda _: CreateTopicsResponse(
            topics=[CreatableTopicResult(name="t", topic_id=TOPIC_ID)]
        ),
        ApiKey.DESCRIBE_CONFIGS: lambda _: DescribeConfigsResponse(
            results=[DescribeConfigsResult(resource_name="t")]
        ),
        ApiKey.LIST_OFFSETS: lambda _: ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    name="t", partitions=[ListOffsetsPartitionResponse(offset=0)]
                )
            ]
        ),
        ApiKey.INIT_PRODUCER_ID: lambda _: InitProducerIdResponse(producer_id=1),
        ApiKey.PRODUCE: lambda _: ProduceResponse(
            responses=[
                TopicProduceResponse(
                    topic_id=TOPIC_ID, partition_responses=[PartitionProduceResponse()]
                )
            ]
        ),
        ApiKey.FETCH: lambda _: FetchResponse(
            responses=[
                FetchableTopicResponse(topic_id=TOPIC_ID, partitions=[PartitionData(records=batch)])
            ]
        ),
    }
    return fake_broker


def use(client: Client) -> None:
    """Use every function of the client once."""
    list_topics(client)
    describe_topics(client, ["t"])
    create_topics(client, ["t"])
    positions = start_offsets(client, "t", [0], -2, client.deadline("the test"))
    with closing(Consumer(client, "t", positions, lambda *jump: None)) as consumer:
        consumer.poll(50)
    producer = Producer(client, "t")
    producer.send(b"k", b"v", 0, partition=0)
    producer.flush()


def test_the_undamaged_answers_are_fine(broker: FakeBroker, connect: Connect) -> None:
    use(connect(broker.address))


@pytest.mark.parametrize("seed", SEEDS)
def test_damaged_answers(
    broker: FakeBroker, connect: Connect, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(client_module, "CONNECT_TIMEOUT_MS", 50)
    chance = random.Random(seed)

    def damage(answer: bytes) -> bytes:
        if chance.random() < 0.8:
            return answer
        damaged = bytearray(answer)
        for _ in range(chance.choice([1, 1, 2, 5])):
            damaged[chance.randrange(len(damaged))] = chance.choice([0, 1, 0x7F, 0x80, 0xFF])
        return bytes(
            damaged[: chance.choice([len(damaged)] * 3 + [chance.randrange(len(damaged))])]
        )

    broker.damage = damage
    with suppress(ClientError):
        use(connect(broker.address, timeout_ms=150))


@pytest.mark.parametrize(
    "address", [("127.0.0.1", 99999), ("127.0.0.1", -1), ("", 0), ("a" * 300, 1), ("\0", 1)]
)
def test_an_address_that_is_none(
    broker: FakeBroker, connect: Connect, address: tuple[str, int]
) -> None:
    wrong = MetadataResponseBroker(node_id=3, host=address[0], port=address[1])
    broker.handlers[ApiKey.METADATA] = lambda _: MetadataResponse(brokers=[wrong])
    client = connect(broker.address)
    with pytest.raises(ClientError, match="broker 3 advertises"):
        client.node(3, client.deadline("the test"))
    assert Address(*address) != broker.address
