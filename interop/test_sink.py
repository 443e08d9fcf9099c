"""The sink's producer against Apache Kafka: every codec, and a broker that comes and goes."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.client.settings import ClientSettings

pyarrow = pytest.importorskip("pyarrow", reason="needs ottla[spark]")

if TYPE_CHECKING:
    from pyarrow import RecordBatch

    from harness.broker import Broker
    from pyspark_ottla.options.sink_options import SinkSettings

TIMEOUT_S = 60
PARTITIONS = 3
CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    from harness.problem import BenchError
    from harness.systems import Kafka

    try:
        broker = Kafka(None).new_broker(tmp_path_factory.mktemp("kafka") / "broker")
    except BenchError as error:
        pytest.skip(str(error))
    broker.start()
    try:
        yield broker
    finally:
        broker.stop()


def settings(broker: Broker, topic: str, **more: Any) -> SinkSettings:
    from pyspark_ottla.options.sink_options import SinkSettings

    servers = f"127.0.0.1:{broker.port}"
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(TIMEOUT_S)
    return SinkSettings(ClientSettings(servers), topic=topic, **more)


def rows(first: int, end: int) -> RecordBatch:
    numbers = [b"%d" % number for number in range(first, end)]
    headers = pyarrow.list_(
        pyarrow.struct([("key", pyarrow.string()), ("value", pyarrow.binary())])
    )
    return pyarrow.record_batch(
        {
            "key": pyarrow.array(numbers),
            "value": pyarrow.array(numbers),
            "headers": pyarrow.array([[{"key": "h", "value": n}] for n in numbers], headers),
        }
    )


def stored(broker: Broker, topic: str, count: int) -> Counter[int]:
    """Return the values in the topic: that many, and not one more."""
    servers = f"127.0.0.1:{broker.port}"
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "g", "check.crcs": True})
    consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in range(PARTITIONS)])
    found: Counter[int] = Counter()
    while found.total() < count:
        messages = consumer.consume(count, TIMEOUT_S)
        assert messages, f"only {found.total()} of {count}"
        for message in messages:
            assert message.error() is None, message.error()
            assert message.headers() == [("h", message.value())]
            found[int(message.value() or b"")] += 1
    assert consumer.consume(1, 0.5) == []
    consumer.close()
    return found


@pytest.mark.parametrize("codec", CODECS)
def test_every_codec(kafka: Broker, codec: str) -> None:
    from pyspark_ottla.sink.producer_pool import producer_for

    with producer_for(settings(kafka, codec, codec=CODECS[codec], batch_bytes=20_000)) as producer:
        for first in range(0, 20_000, 5_000):
            producer.add(rows(first, first + 5_000))
    assert producer.rows == {codec: 20_000}
    producer.close()
    assert stored(kafka, codec, 20_000) == Counter(range(20_000))


def test_a_broker_that_goes_away_and_comes_back(kafka: Broker, tmp_path: Path) -> None:
    from pyspark_ottla.sink.producer import Producer

    producer = Producer(settings(kafka, "again", batch_bytes=4_000))
    producer.add(rows(0, 1_000))
    producer.flush()

    def restart() -> None:
        kafka.stop()
        kafka.start()

    mishap = threading.Thread(target=restart)
    mishap.start()
    total = 1_000
    while mishap.is_alive() and total < 500_000:
        producer.add(rows(total, total + 1_000))
        total += 1_000
    mishap.join()
    producer.flush()
    producer.close()
    assert stored(kafka, "again", total) == Counter(range(total))
