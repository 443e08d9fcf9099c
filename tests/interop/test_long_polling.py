"""A fetch with nothing to give waits for data, wakes when it comes, and gives up in time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from tests.harness.batches import batch_of, records_of
from tests.harness.model import LATEST, Client
from tests.harness.raw import RawConnection
from tests.harness.topics import create_topic, fetch, fetch_fields, produce

SLACK_S = 1.0  # for a machine with other things to do

T = TypeVar("T")


def timed(work: Callable[[], T]) -> tuple[T, float]:
    start = time.monotonic()
    answer = work()
    return answer, time.monotonic() - start


def send_fetch(
    raw: RawConnection, topic: str, offset: int, *, max_wait_ms: int, min_bytes: int = 1
) -> int:
    return raw.send(
        "fetch",
        12,
        **fetch_fields({topic: {0: offset}}, max_wait_ms=max_wait_ms, min_bytes=min_bytes),
    )


def test_an_empty_fetch_is_answered_after_max_wait(raw: RawConnection, topic: str) -> None:
    answer, took_s = timed(lambda: fetch(raw, topic, 0, max_wait_ms=300))
    assert not answer.records
    assert 0.29 <= took_s < 0.3 + SLACK_S


def test_an_empty_fetch_without_wait_is_answered_at_once(raw: RawConnection, topic: str) -> None:
    for options in ({"max_wait_ms": 0}, {"max_wait_ms": 5_000, "min_bytes": 0}):
        _, took_s = timed(partial(fetch, raw, topic, 0, **options))
        assert took_s < SLACK_S


def test_new_data_wakes_a_waiting_fetch(
    raw: RawConnection, topic: str, bootstrap_servers: str
) -> None:
    with RawConnection(bootstrap_servers) as writer:
        correlation_id = send_fetch(raw, topic, 0, max_wait_ms=30_000)
        produce(writer, topic, batch_of([b"wake"]))
        answer, took_s = timed(lambda: raw.receive("fetch", 12, correlation_id))
    assert took_s < SLACK_S
    partition = answer.responses[0].partitions[0]
    assert [record.value for record in records_of(partition.records)] == [b"wake"]
    assert partition.high_watermark == 1


def test_min_bytes_holds_a_fetch_until_there_is_enough(
    raw: RawConnection, topic: str, bootstrap_servers: str
) -> None:
    batch = batch_of([b"x" * 1_000])
    with (
        RawConnection(bootstrap_servers, timeout_s=0.2) as reader,
        RawConnection(bootstrap_servers) as writer,
    ):
        correlation_id = send_fetch(reader, topic, 0, max_wait_ms=30_000, min_bytes=3 * len(batch))
        for _ in range(2):
            produce(writer, topic, batch)
        assert not answered(reader), "answered before min_bytes were there"
        produce(writer, topic, batch)
        reader.socket.settimeout(10)
        answer = reader.receive("fetch", 12, correlation_id)
    assert len(records_of(answer.responses[0].partitions[0].records)) == 3


def answered(reader: RawConnection) -> bool:
    try:
        reader.socket.recv(1)
    except TimeoutError:
        return False
    return True


def test_min_bytes_gives_what_there_is_after_max_wait(raw: RawConnection, topic: str) -> None:
    produce(raw, topic, batch_of([b"little"]))
    answer, took_s = timed(lambda: fetch(raw, topic, 0, max_wait_ms=300, min_bytes=1_000_000))
    assert 0.29 <= took_s < 0.3 + SLACK_S
    assert len(records_of(answer.records)) == 1


def test_bytes_of_all_partitions_count_for_min_bytes(
    raw: RawConnection, make_topic: Callable[..., str]
) -> None:
    topic = make_topic(2)
    batch = batch_of([b"x" * 1_000])
    for partition in (0, 1):
        produce(raw, topic, batch, partition=partition)
    _, took_s = timed(
        lambda: raw.request(
            "fetch",
            12,
            **fetch_fields({topic: {0: 0, 1: 0}}, max_wait_ms=5_000, min_bytes=2 * len(batch)),
        )
    )
    assert took_s < SLACK_S


def test_an_error_in_one_partition_answers_at_once(
    raw: RawConnection, make_topic: Callable[..., str]
) -> None:
    topic = make_topic(2)
    answer, took_s = timed(
        lambda: raw.request("fetch", 12, **fetch_fields({topic: {0: 0, 1: 99}}, max_wait_ms=5_000))
    )
    assert took_s < SLACK_S
    codes = [each.error_code for each in answer.responses[0].partitions]
    assert codes == [0, 1]


def test_requests_behind_a_waiting_fetch_are_answered_in_order(
    raw: RawConnection, topic: str, bootstrap_servers: str
) -> None:
    first = send_fetch(raw, topic, 0, max_wait_ms=30_000)
    second = raw.send("api_versions", 0)
    with RawConnection(bootstrap_servers) as writer:
        produce(writer, topic, batch_of([b"go"]))
    raw.receive("fetch", 12, first)
    assert raw.receive("api_versions", 0, second).error_code == 0


def test_deleting_the_topic_ends_the_wait(
    raw: RawConnection, unused_name: str, bootstrap_servers: str
) -> None:
    create_topic(bootstrap_servers, unused_name)
    waiting = send_fetch(raw, unused_name, 0, max_wait_ms=8_000)
    with RawConnection(bootstrap_servers) as other:
        other.request("delete_topics", 5, topic_names=[unused_name], timeout=10_000)
    answer, took_s = timed(lambda: raw.receive("fetch", 12, waiting))
    assert took_s < 3
    assert answer.responses[0].partitions[0].error_code in (3, 6)


def test_many_waiting_fetches_all_wake(topic: str, bootstrap_servers: str) -> None:
    readers = [RawConnection(bootstrap_servers) for _ in range(50)]
    try:
        ids = [send_fetch(reader, topic, 0, max_wait_ms=30_000) for reader in readers]
        with RawConnection(bootstrap_servers) as writer:
            produce(writer, topic, batch_of([b"all"]))
        for reader, correlation_id in zip(readers, ids, strict=True):
            answer = reader.receive("fetch", 12, correlation_id)
            assert len(records_of(answer.responses[0].partitions[0].records)) == 1
    finally:
        for reader in readers:
            reader.close()


def test_a_consumer_gets_a_message_as_soon_as_it_is_written(
    client: Client, raw: RawConnection, topic: str, bootstrap_servers: str
) -> None:
    produce(raw, topic, batch_of([b"first"]))
    with client.consumer(bootstrap_servers, max_wait_ms=10_000) as consumer:
        consumer.assign({(topic, 0): 0})
        consumer.take(1)  # it reads now, and its next fetch is about to wait
        writing = threading.Timer(0.3, lambda: produce(raw, topic, batch_of([b"second"])))
        writing.start()
        (message, *_), took_s = timed(lambda: consumer.take(1))
        writing.join()
    assert message.value == b"second"
    assert took_s < 5, "it waited for max_wait instead of the data"


def test_a_consumer_waiting_at_the_end_is_not_busy(
    client: Client, raw: RawConnection, topic: str, bootstrap_servers: str
) -> None:
    produce(raw, topic, batch_of([b"only"]))
    with client.consumer(bootstrap_servers) as consumer:
        consumer.assign({(topic, 0): LATEST})
        assert consumer.poll(0.5) == []
