"""Headers, null and empty keys and values, timestamps: each field comes back as it was sent."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.harness.batches import batch_of, now_ms, whole_batches
from tests.harness.model import CREATE_TIME, EARLIEST, LOG_APPEND_TIME, Client, Headers, Message
from tests.harness.raw import RawConnection
from tests.harness.topics import fetch, produce

INVALID_TIMESTAMP = 32
INVALID_RECORD = 87
UNKNOWN_SERVER_ERROR = -1


def write_and_read(
    client: Client, bootstrap_servers: str, topic: str, *values: bytes | None, **options: object
) -> list[Message]:
    with client.producer(bootstrap_servers) as producer:
        for value in values:
            producer.send(topic, value, **options)  # type: ignore[arg-type]
        assert [ack.error for ack in producer.flush()] == [0] * len(values)
    with client.consumer(bootstrap_servers) as consumer:
        consumer.assign({(topic, 0): EARLIEST})
        return consumer.take(len(values))


def test_headers_keep_order_repetition_and_null_values(
    client: Client, topic: str, bootstrap_servers: str
) -> None:
    headers: Headers = (("a", b"1"), ("b", b""), ("a", b"2"), ("ключ", b"\x00\xff"))
    if client.name != "kafka-python":  # its producer refuses null values; its consumer reads them
        headers += (("null", None),)
    (message,) = write_and_read(client, bootstrap_servers, topic, b"v", headers=headers)
    assert message.headers == headers


def test_null_header_values_are_read_by_all(
    clients: list[Client], topic: str, bootstrap_servers: str
) -> None:
    writer = next(each for each in clients if each.name == "confluent-kafka")
    write_and_read(writer, bootstrap_servers, topic, b"v", headers=(("null", None),))
    for reader in clients:
        with reader.consumer(bootstrap_servers) as consumer:
            consumer.assign({(topic, 0): EARLIEST})
            assert consumer.take(1)[0].headers == (("null", None),)


def test_many_headers(client: Client, topic: str, bootstrap_servers: str) -> None:
    headers = tuple((f"name-{number}", b"%d" % number) for number in range(300))
    (message,) = write_and_read(client, bootstrap_servers, topic, b"v", headers=headers)
    assert message.headers == headers


@pytest.mark.parametrize("key", [None, b"", b"k"])
def test_null_and_empty_are_different(
    client: Client, topic: str, bootstrap_servers: str, key: bytes | None
) -> None:
    messages = write_and_read(client, bootstrap_servers, topic, b"", b"v", key=key)
    assert [(message.key, message.value) for message in messages] == [(key, b""), (key, b"v")]


def test_a_null_value_is_a_tombstone_not_an_empty_value(
    client: Client, topic: str, bootstrap_servers: str
) -> None:
    (message,) = write_and_read(client, bootstrap_servers, topic, None, key=b"k")
    assert (message.key, message.value) == (b"k", None)


def test_create_time_is_the_producers(client: Client, topic: str, bootstrap_servers: str) -> None:
    stamp = now_ms() - 3_600_123
    (message,) = write_and_read(client, bootstrap_servers, topic, b"v", timestamp_ms=stamp)
    assert (message.timestamp_ms, message.timestamp_type) == (stamp, CREATE_TIME)


def test_log_append_time_is_the_brokers(
    client: Client, make_topic: Callable[..., str], bootstrap_servers: str
) -> None:
    topic = make_topic(configs={"message.timestamp.type": "LogAppendTime"})
    before = now_ms()
    (message,) = write_and_read(client, bootstrap_servers, topic, b"v", timestamp_ms=12_345)
    assert message.timestamp_type == LOG_APPEND_TIME
    assert before <= message.timestamp_ms <= now_ms()


def test_log_append_time_is_told_to_the_producer_and_stamped_on_the_batch(
    raw: RawConnection, make_topic: Callable[..., str]
) -> None:
    topic = make_topic(configs={"message.timestamp.type": "LogAppendTime"})
    before = now_ms()
    answer = produce(raw, topic, batch_of([b"a" * 100] * 9, timestamp_ms=1, codec="gzip"))
    (batch,) = whole_batches(fetch(raw, topic, 0).records)
    assert batch.timestamp_type == LOG_APPEND_TIME
    assert before <= batch.max_timestamp <= now_ms()
    assert {record.timestamp for record in batch} == {batch.max_timestamp}
    told_ms = round(answer.log_append_time.timestamp() * 1000)
    assert told_ms == batch.max_timestamp


def test_create_time_tells_no_append_time(raw: RawConnection, topic: str) -> None:
    assert produce(raw, topic, batch_of([b"a"])).log_append_time is None


@pytest.mark.parametrize(
    ("setting", "shift_ms"),
    [
        ("message.timestamp.before.max.ms", -60_000),
        ("message.timestamp.after.max.ms", 60_000),
    ],
)
def test_timestamps_too_far_off_are_refused(
    client: Client,
    make_topic: Callable[..., str],
    bootstrap_servers: str,
    setting: str,
    shift_ms: int,
) -> None:
    topic = make_topic(configs={setting: "10000"})
    with client.producer(bootstrap_servers) as producer:
        producer.send(topic, b"far", timestamp_ms=now_ms() + shift_ms)
        (refused,) = producer.flush()
        producer.send(topic, b"near", timestamp_ms=now_ms())
        (taken,) = producer.flush()
    assert refused.error == INVALID_TIMESTAMP
    assert (taken.error, taken.offset) == (0, 0)


def test_an_hour_into_the_future_is_the_default_limit(raw: RawConnection, topic: str) -> None:
    far = batch_of([b"v"], timestamp_ms=now_ms() + 2 * 3_600_000)
    assert produce(raw, topic, far).error_code == INVALID_TIMESTAMP
    near = batch_of([b"v"], timestamp_ms=now_ms() + 1_800_000)
    assert produce(raw, topic, near).error_code == 0


def test_a_compacted_topic_refuses_null_keys(
    client: Client, make_topic: Callable[..., str], bootstrap_servers: str
) -> None:
    topic = make_topic(configs={"cleanup.policy": "compact"})
    with client.producer(bootstrap_servers) as producer:
        producer.send(topic, b"v", key=b"k")
        (taken,) = producer.flush()
        producer.send(topic, b"v", key=None)
        (refused,) = producer.flush()
    assert taken.error == 0
    # aiokafka does not know INVALID_RECORD and says "unknown error".
    assert refused.error == (UNKNOWN_SERVER_ERROR if client.name == "aiokafka" else INVALID_RECORD)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_null_keys_are_found_inside_compressed_batches(
    raw: RawConnection, make_topic: Callable[..., str], codec: str
) -> None:
    topic = make_topic(configs={"cleanup.policy": "compact"})
    assert produce(raw, topic, batch_of([b"v" * 99] * 5, codec=codec, key=b"k")).error_code == 0
    refused = produce(raw, topic, batch_of([b"v" * 99] * 5, codec=codec, key=None))
    assert refused.error_code == INVALID_RECORD
    assert [error.batch_index for error in refused.record_errors] == [0, 1, 2, 3, 4]
