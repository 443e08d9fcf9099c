"""`ottla load` of several topics in one process, from given offsets."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from ottla.cli.main import main
from tests.support.spark_fixtures import MakeTopic, Produce

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(autouse=True)
def _signals() -> Iterator[None]:
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def test_two_topics_by_an_expression_from_an_offset(
    spark: SparkSession,
    bootstrap_servers: str,
    topic: MakeTopic,
    produce: Produce,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The command uses the session that runs, as it does for all topics after the first."""
    prefix = topic()
    names = [topic(name=f"{prefix}.{word}") for word in ("a", "b")]
    for name in names:
        produce(name, 5)
    words = [rf"{prefix}\..*", "--to", f"parquet:{tmp_path}/{{topic}}", "--json"]
    words += ["--from", '{"0": 3}', "--metrics-port", "0", "-b", bootstrap_servers]
    assert main(["load", *words]) == 0
    said = capsys.readouterr()
    loads = json.loads(said.out)["loads"]
    assert [(load["topic"], load["rows"], load["lag"]) for load in loads] == [
        (name, 2, 0) for name in names
    ]
    assert "/metrics, JSON at /json" in said.err
    for name in names:
        rows = spark.read.parquet(f"{tmp_path}/{name}").collect()
        assert sorted(row.offset for row in rows) == [3, 4]
    assert main(["load", *words]) == 0
    said = capsys.readouterr()
    assert [load["batches"] for load in json.loads(said.out)["loads"]] == [0, 0]
    assert said.err.count("nothing new") == 2


def test_rows_of_aborted_transactions_are_loaded_only_if_asked_for(
    spark: SparkSession, bootstrap_servers: str, topic: MakeTopic, tmp_path: Path
) -> None:
    name = topic()
    producer = Producer(
        {"bootstrap.servers": bootstrap_servers, "transactional.id": f"load-{name}"}
    )
    producer.init_transactions(60)
    for value, is_kept in (("kept", True), ("given up", False), ("kept too", True)):
        producer.begin_transaction()
        producer.produce(name, value)
        producer.flush(60)
        if is_kept:
            producer.commit_transaction(60)
        else:
            producer.abort_transaction(60)

    def loaded(into: str, *words: str) -> list[bytes]:
        target = str(tmp_path / into)
        said = ["load", name, "--to", f"parquet:{target}", "-b", bootstrap_servers, *words]
        assert main(said) == 0
        rows = spark.read.parquet(target).orderBy("offset").collect()
        return [bytes(row.value) for row in rows]

    assert loaded("default") == [b"kept", b"kept too"]
    everything = loaded("all", "--isolation-level", "read_uncommitted")
    assert everything == [b"kept", b"given up", b"kept too"]
