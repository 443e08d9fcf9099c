"""The sample of a topic, from which a load infers the columns of its table."""

from __future__ import annotations

import json

import pytest
from confluent_kafka import Producer

from ottla_spark.loads.errors import LoadError
from ottla_spark.loads.formats.format_choice import choose_format
from ottla_spark.loads.options.load_options import LoadOptions
from ottla_spark.loads.options.value_format import ValueFormat
from ottla_spark.loads.run.load_run import connect
from ottla_spark.loads.run.topic_sample import SAMPLE_RECORDS, sample, topic_offsets
from ottla_spark.loads.targets.address import parse_address
from tests.support.spark_fixtures import MakeTopic, Produce

TIMEOUT_S = 30


def load_of(topic: str, servers: str, isolation_level: str | None = None) -> LoadOptions:
    return LoadOptions(
        topic=topic,
        to=parse_address("parquet:/nowhere"),
        client={"bootstrap.servers": servers},
        format=ValueFormat.JSON,
        isolation_level=isolation_level,
    )


def sampled(options: LoadOptions) -> list[bytes]:
    with connect(options) as client:
        return sample(client, options, topic_offsets(client, options))


def test_records_of_aborted_transactions_count_only_if_they_are_loaded(
    bootstrap_servers: str, topic: MakeTopic
) -> None:
    name = topic()
    producer = Producer({"bootstrap.servers": bootstrap_servers, "transactional.id": name})
    producer.init_transactions(TIMEOUT_S)
    for number in range(4):
        producer.begin_transaction()
        producer.produce(name, value=str(number).encode())
        producer.flush()
        (producer.abort_transaction if number % 2 else producer.commit_transaction)()
    assert sampled(load_of(name, bootstrap_servers)) == [b"0", b"2"]
    everything = load_of(name, bootstrap_servers, "read_uncommitted")
    assert sampled(everything) == [b"0", b"1", b"2", b"3"]


@pytest.mark.parametrize("records", [3, SAMPLE_RECORDS // 2 + 3, 2 * SAMPLE_RECORDS])
def test_no_record_counts_twice(
    bootstrap_servers: str, topic: MakeTopic, produce: Produce, records: int
) -> None:
    name = topic()
    produce(name, records)
    values = sampled(load_of(name, bootstrap_servers))
    assert len(values) == len(set(values)) == min(records, SAMPLE_RECORDS)
    assert {b"v0", f"v{records - 1}".encode()} <= set(values)


def test_a_sample_without_fields_is_told_with_its_size(
    bootstrap_servers: str, topic: MakeTopic, produce: Produce
) -> None:
    name = topic()
    produce(name, 3, value=lambda _: json.dumps({}).encode())
    options = load_of(name, bootstrap_servers)
    with pytest.raises(LoadError, match="none of 3 values at the start and the end of the topic"):
        choose_format(options, None, sampled(options))
