"""Topics whose records a helper process looks at, with real processes and real clients.

The tests stop the helper process (SIGSTOP) to hold its work as long as they like.
"""

from __future__ import annotations

import signal
from collections.abc import Callable

import psutil
import pytest
from confluent_kafka import Consumer, Producer

from ottla.testing import Cluster
from tests.harness.batches import batch_of, records_of
from tests.harness.confluent import place_of
from tests.harness.deadline import eventually
from tests.harness.process import BrokerProcess
from tests.harness.raw import RawConnection
from tests.harness.topics import create_topic, fetch, produce

KAFKA_STORAGE_ERROR = 56
MESSAGE_TOO_LARGE = 10
MESSAGES = 3000


def helper_of(pid: int) -> psutil.Process | None:
    children = [
        child
        for child in psutil.Process(pid).children()
        if "ottla.server.helper_main" in child.cmdline()
    ]
    return children[0] if children else None


def started_helper(broker: BrokerProcess) -> psutil.Process:
    """Have a batch looked at, and return the process that does it."""
    create_topic(broker.bootstrap_servers, "gzip", 1, {"compression.type": "gzip"})
    with RawConnection(broker.bootstrap_servers) as raw:
        assert produce(raw, "gzip", large("zstd")).error_code == 0
    helper = helper_of(broker.process.pid)
    assert helper is not None
    return helper


def large(codec: str) -> bytes:
    return batch_of([b"value-%d" % number * 30 for number in range(2000)], codec=codec)


def send(raw: RawConnection, topic: str, batch: bytes) -> int:
    data = [{"name": topic, "partition_data": [{"index": 0, "records": batch}]}]
    return raw.send("produce", 9, acks=-1, timeout=1000, topic_data=data)


def answer(raw: RawConnection, correlation_id: int) -> tuple[int, int]:
    """Return (error code, base offset) of a Produce with one partition."""
    (topic,) = raw.receive("produce", 9, correlation_id).responses
    (partition,) = topic.partition_responses
    return int(partition.error_code), partition.base_offset


def test_a_broker_without_such_topics_has_no_helper(broker: BrokerProcess) -> None:
    create_topic(broker.bootstrap_servers, "t")
    with RawConnection(broker.bootstrap_servers) as raw:
        assert produce(raw, "t", large("none")).error_code == 0
        assert produce(raw, "t", batch_of([b"value"] * 20, codec="gzip")).error_code == 0
    assert psutil.Process(broker.process.pid).children() == []


def test_others_are_served_while_a_helper_works(broker: BrokerProcess) -> None:
    helper = started_helper(broker)
    create_topic(broker.bootstrap_servers, "plain")
    create_topic(broker.bootstrap_servers, "arrived")
    helper.send_signal(signal.SIGSTOP)
    with (
        RawConnection(broker.bootstrap_servers) as slow,
        RawConnection(broker.bootstrap_servers) as quick,
    ):
        first = send(slow, "gzip", large("none"))
        send(slow, "arrived", batch_of([b"a"]))
        eventually(lambda: fetch(quick, "arrived", 0).high_watermark == 1, "both have arrived")
        second = send(quick, "gzip", batch_of([b"behind"]))
        third = send(quick, "plain", batch_of([b"p"]))
        with RawConnection(broker.bootstrap_servers) as other:
            eventually(lambda: fetch(other, "plain", 0).high_watermark == 1, "it is written")
            for number in range(20):
                assert produce(other, "plain", batch_of([b"q"])).base_offset == number + 1
            assert len(records_of(fetch(other, "plain", 0).records)) == 21
            assert fetch(other, "gzip", 0).high_watermark == 2000
        helper.send_signal(signal.SIGCONT)
        assert answer(slow, first) == (0, 2000)
        assert answer(quick, second) == (0, 4000)
        assert answer(quick, third) == (0, 0)


def test_a_helper_that_is_killed_at_work(broker: BrokerProcess) -> None:
    helper = started_helper(broker)
    helper.send_signal(signal.SIGSTOP)
    with RawConnection(broker.bootstrap_servers) as raw:
        first = send(raw, "gzip", large("none"))
        second = send(raw, "gzip", batch_of([b"behind"]))
        helper.kill()
        assert (answer(raw, first), answer(raw, second)) in (
            ((KAFKA_STORAGE_ERROR, -1), (0, 2000)),
            ((0, 2000), (0, 4000)),  # the helper was gone before it got the batch
        )
        assert produce(raw, "gzip", large("zstd")).error_code == 0
    replaced = helper_of(broker.process.pid)
    assert replaced is not None
    assert replaced.pid != helper.pid


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_helper_ends_with_its_broker(
    start_broker: Callable[..., BrokerProcess], is_killed: bool
) -> None:
    broker = start_broker()
    helper = started_helper(broker)
    if is_killed:
        broker.kill()
    else:
        assert broker.stop() == 0
    helper.wait(15)


@pytest.mark.parametrize("codec", ["gzip", "zstd"])
def test_a_bomb_is_refused(broker: BrokerProcess, codec: str) -> None:
    bomb = batch_of([bytes(110_000_000)], codec=codec)
    assert len(bomb) < 1_000_000
    settings = {"compression.type": "lz4"}, {"cleanup.policy": "compact"}
    with RawConnection(broker.bootstrap_servers, timeout_s=60) as raw:
        for number, setting in enumerate(settings):
            create_topic(broker.bootstrap_servers, f"bomb-{number}", 1, setting)
            before = broker.rss_bytes()
            assert produce(raw, f"bomb-{number}", bomb).error_code == MESSAGE_TOO_LARGE
            assert broker.rss_bytes() < before + 20_000_000


@pytest.mark.parametrize("memory", [False, True])
def test_idempotent_producers_of_other_codecs(memory: bool) -> None:
    with Cluster(memory=memory) as cluster:
        servers = cluster.bootstrap_servers
        create_topic(servers, "gzip", 2, {"compression.type": "gzip"})
        producers = [
            Producer(
                {
                    "bootstrap.servers": servers,
                    "compression.type": codec,
                    "enable.idempotence": True,
                    "linger.ms": 1,
                    "batch.num.messages": 50,
                }
            )
            for codec in ("zstd", "gzip", "none", "lz4")
        ]
        errors: list[object] = []

        def delivered(error: object, message: object) -> None:
            if error:
                errors.append(error)

        for number in range(MESSAGES):
            for name, producer in enumerate(producers):
                value = b"%d %d " % (name, number) + b"x" * (number % 700)
                producer.produce(
                    "gzip",
                    value,
                    key=b"%d" % name,
                    partition=number % 2,
                    on_delivery=delivered,
                )
                producer.poll(0)
        for producer in producers:
            assert producer.flush(60) == 0
        assert errors == []
        assert consumed(servers, len(producers)) == {
            (name, index): list(range(index, MESSAGES, 2))
            for name in range(len(producers))
            for index in range(2)
        }


def consumed(servers: str, producers: int) -> dict[tuple[int, int], list[int]]:
    """Return the numbers by producer and partition, in the order of the log."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(["gzip"])
    found: dict[tuple[int, int], list[int]] = {}
    count = 0
    while count < producers * MESSAGES:
        messages = consumer.consume(1000, 20)
        assert messages, f"only {count} messages"
        for message in messages:
            assert message.error() is None
            _, partition, _ = place_of(message)
            name, number, _ = (message.value() or b"").split(b" ", 2)
            found.setdefault((int(name), partition), []).append(int(number))
            count += 1
    consumer.close()
    return found
