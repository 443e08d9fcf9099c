"""What a producer is told: acks, sizes, unknown topics, damaged batches, duplicates."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

from tests.harness.batches import batch_of, now_ms, records_of, reseal, whole_batches
from tests.harness.deadline import eventually
from tests.harness.model import CREATE_TIME, EARLIEST, Client
from tests.harness.raw import RawConnection
from tests.harness.topics import fetch, produce

CORRUPT_MESSAGE = 2
UNKNOWN_TOPIC_OR_PARTITION = 3
MESSAGE_TOO_LARGE = 10
INVALID_REQUIRED_ACKS = 21
INVALID_RECORD = 87


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_every_kind_of_acks_stores_the_messages(
    client: Client, topic: str, bootstrap_servers: str, acks: int | str
) -> None:
    values = [b"%d" % number for number in range(100)]
    with client.producer(bootstrap_servers, acks=acks) as producer:
        for value in values:
            producer.send(topic, value)
        result = producer.flush()
        assert [ack.error for ack in result] == [0] * 100
        if acks != 0:
            assert [ack.offset for ack in result] == list(range(100))
        with client.consumer(bootstrap_servers) as consumer:
            consumer.assign({(topic, 0): EARLIEST})
            assert [message.value for message in consumer.take(100)] == values


def test_acks_0_is_never_answered(raw: RawConnection, topic: str) -> None:
    for _ in range(3):
        raw.send(
            "produce",
            9,
            acks=0,
            timeout=10_000,
            topic_data=[
                {"name": topic, "partition_data": [{"index": 0, "records": batch_of([b"v"])}]}
            ],
        )
    assert raw.request("api_versions", 0).error_code == 0, "the next answer is the next request's"
    eventually(lambda: len(records_of(fetch(raw, topic, 0).records)) == 3, "all were written")


def test_an_error_with_acks_0_closes_the_connection(raw: RawConnection, topic: str) -> None:
    raw.send(
        "produce",
        9,
        acks=0,
        timeout=10_000,
        topic_data=[
            {"name": topic, "partition_data": [{"index": 77, "records": batch_of([b"v"])}]}
        ],
    )
    assert raw.is_closed_by_peer(), "closing is the only way to tell the client"


@pytest.mark.parametrize("acks", [2, -2, 100])
def test_other_acks_are_refused(raw: RawConnection, topic: str, acks: int) -> None:
    answer = produce(raw, topic, batch_of([b"v"]), acks=acks)
    assert (answer.error_code, answer.base_offset) == (INVALID_REQUIRED_ACKS, -1)
    assert not fetch(raw, topic, 0).records


def test_a_message_over_the_limit_is_refused_and_the_next_taken(
    client: Client, make_topic: Callable[..., str], bootstrap_servers: str
) -> None:
    topic = make_topic(configs={"max.message.bytes": "10000"})
    with client.producer(bootstrap_servers) as producer:
        producer.send(topic, b"x" * 20_000)
        (refused,) = producer.flush()
        producer.send(topic, b"x" * 5_000)
        (taken,) = producer.flush()
    assert refused.error == MESSAGE_TOO_LARGE
    assert (taken.error, taken.offset) == (0, 0)


def test_the_limit_counts_the_whole_batch(
    raw: RawConnection, make_topic: Callable[..., str]
) -> None:
    batch = batch_of([b"x" * 100] * 20)
    tight = make_topic(configs={"max.message.bytes": str(len(batch) - 1)})
    assert produce(raw, tight, batch).error_code == MESSAGE_TOO_LARGE
    exact = make_topic(configs={"max.message.bytes": str(len(batch))})
    assert produce(raw, exact, batch).error_code == 0


def test_the_default_limit(raw: RawConnection, topic: str) -> None:
    overhead = len(batch_of([b"x" * 1_000_000])) - 1_000_000
    fits = batch_of([b"x" * (1_048_588 - overhead)])
    assert len(fits) == 1_048_588
    assert produce(raw, topic, fits).error_code == 0
    assert produce(raw, topic, batch_of([b"x" * 1_048_588])).error_code == MESSAGE_TOO_LARGE


def test_an_unknown_topic_is_refused_and_not_created(raw: RawConnection, unused_name: str) -> None:
    answer = produce(raw, unused_name, batch_of([b"v"]))
    assert answer.error_code == UNKNOWN_TOPIC_OR_PARTITION
    answer = raw.request(
        "metadata", 12, topics=[{"name": unused_name}], allow_auto_topic_creation=False
    )
    assert answer.topics[0].error_code == UNKNOWN_TOPIC_OR_PARTITION


def test_pipelined_requests_keep_their_order(raw: RawConnection, topic: str) -> None:
    sent = [
        raw.send(
            "produce",
            9,
            acks=1,
            timeout=10_000,
            topic_data=[{"name": topic, "partition_data": [{"index": 0, "records": batch}]}],
        )
        for batch in (batch_of([b"%d" % each]) for each in range(200))
    ]
    offsets = [
        raw.receive("produce", 9, each).responses[0].partition_responses[0].base_offset
        for each in sent
    ]
    assert offsets == list(range(200))
    values = [record.value for record in records_of(fetch(raw, topic, 0).records)]
    assert values == [b"%d" % each for each in range(200)]


@pytest.mark.parametrize("acks", [1, -1])
def test_min_insync_replicas_asks_for_no_more_than_there_are(
    raw: RawConnection, make_topic: Callable[..., str], acks: int
) -> None:
    topic = make_topic(configs={"min.insync.replicas": "2"})
    assert produce(raw, topic, batch_of([b"v"]), acks=acks).error_code == 0


def test_a_wrong_crc_is_refused(raw: RawConnection, topic: str) -> None:
    batch = bytearray(batch_of([b"value"]))
    batch[-1] ^= 1
    assert produce(raw, topic, bytes(batch)).error_code == CORRUPT_MESSAGE


NONSENSE = {
    "a record count that does not fit the last offset": (57, ">i", 7),
    "no records": (57, ">i", 0),
    "a negative record count": (57, ">i", -1),
    "a last offset that does not fit the count": (23, ">i", 9),
    "a base offset": (0, ">q", 4_711),
    "a control batch": (21, ">h", 0x20),
}


@pytest.mark.parametrize("what", NONSENSE)
def test_nonsense_in_a_batch_header_is_refused(raw: RawConnection, topic: str, what: str) -> None:
    position, layout, value = NONSENSE[what]
    batch = bytearray(batch_of([b"one", b"two"]))
    struct.pack_into(layout, batch, position, value)
    assert produce(raw, topic, reseal(batch)).error_code == INVALID_RECORD
    assert not fetch(raw, topic, 0).records


@pytest.mark.parametrize("attributes", [5, 6, 7, 0x10, 0x30])
def test_unknown_codecs_and_stray_transactions_are_refused(
    raw: RawConnection, topic: str, attributes: int
) -> None:
    batch = bytearray(batch_of([b"one", b"two"]))
    struct.pack_into(">h", batch, 21, attributes)
    assert produce(raw, topic, reseal(batch)).error_code != 0
    assert not fetch(raw, topic, 0).records


def test_the_leader_epoch_of_a_producer_is_overwritten(raw: RawConnection, topic: str) -> None:
    batch = bytearray(batch_of([b"v"]))
    struct.pack_into(">i", batch, 12, 99)
    assert produce(raw, topic, bytes(batch)).error_code == 0
    stored = fetch(raw, topic, 0).records
    assert struct.unpack_from(">i", stored, 12) == (0,)


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_the_timestamp_type_is_the_topics_whatever_the_batch_says(
    raw: RawConnection, topic: str, codec: str
) -> None:
    batch = bytearray(batch_of([b"v" * 500] * 5, timestamp_ms=now_ms() - 5_000, codec=codec))
    (attributes,) = struct.unpack_from(">h", batch, 21)
    struct.pack_into(">h", batch, 21, attributes | 0x08)
    assert produce(raw, topic, reseal(batch)).error_code == 0
    (stored,) = whole_batches(fetch(raw, topic, 0).records)
    assert stored.timestamp_type == CREATE_TIME


def test_two_batches_for_one_partition_in_a_request_are_refused(
    raw: RawConnection, topic: str
) -> None:
    answer = produce(raw, topic, batch_of([b"a"]) + batch_of([b"b"]))
    assert answer.error_code == INVALID_RECORD


@pytest.mark.parametrize("magic", [0, 1])
def test_old_message_formats_are_refused(raw: RawConnection, topic: str, magic: int) -> None:
    batch = bytearray(batch_of([b"v"]))
    batch[16] = magic
    assert produce(raw, topic, bytes(batch)).error_code in (CORRUPT_MESSAGE, INVALID_RECORD, 43)
