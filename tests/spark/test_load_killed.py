"""Loads that are killed at random moments and started again: each record once, none missing.

A kill comes some time after Spark has planned a certain batch, so that it falls into reading,
writing or committing. What is killed is everything, or the Java process alone, or the broker.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

import ottla_spark
from ottla.client.errors import ClientError
from ottla_spark.loads.errors import LoadError
from tests.harness.process import COMMAND, BrokerProcess
from tests.harness.process_tree import kill_tree
from tests.support.spark_fixtures import MakeTopic, Produce

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.usefixtures("shared_java_classes")
RECORDS = 2400
A_BATCH = 300
PATIENCE_S = 200
MOST_RUNS = 6


def json_value(number: int) -> bytes:
    return b"broken" if number % 100 == 50 else json.dumps({"n": number}).encode()


class Loads:
    """`ottla load` again and again, killed by `plan`: (batch, whom) for each run."""

    def __init__(self, words: list[str], directory: Path) -> None:
        self._words = words
        self._planned = directory / "checkpoint" / "offsets"
        self._chance = random.Random(os.environ.get("OTTLA_TEST_SEED", time.time_ns()))

    def run_until_done(self, plan: list[tuple[int, str]]) -> int:
        """Follow the plan, then run to the end; its exit code."""
        for batch, whom in plan:
            self._run_and_kill(batch, whom)
        for _ in range(MOST_RUNS):
            process = self._start()
            _, said = process.communicate(timeout=PATIENCE_S)
            if process.returncode != 1:
                return process.returncode
        raise AssertionError(said)

    def _run_and_kill(self, batch: int, whom: str) -> None:
        process = self._start()
        deadline = time.monotonic() + PATIENCE_S
        while process.poll() is None and not (self._planned / str(batch)).exists():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        time.sleep(self._chance.uniform(0, 0.6))  # not to wait for something: to hit anything
        _kill(process, whom)
        _, said = process.communicate(timeout=PATIENCE_S)
        assert "Traceback" not in said or whom == "all", said

    def _start(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*COMMAND, "load", *self._words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


def _kill(process: subprocess.Popen[str], whom: str) -> None:
    if process.poll() is not None:
        return  # it was done before
    if whom == "all":
        kill_tree(process.pid)
        return
    try:
        for child in psutil.Process(process.pid).children(recursive=True):
            if child.name() == "java":
                child.kill()
    except psutil.NoSuchProcess:
        pass  # it was done before


@pytest.mark.timeout(600)
def test_parquet(
    spark: SparkSession, bootstrap_servers: str, topic: MakeTopic, produce: Produce, tmp_path: Path
) -> None:
    name = topic(2)
    produce(name, RECORDS)
    table = tmp_path / "table"
    words = [name, "--to", f"parquet:{table}", "-b", bootstrap_servers]
    words += ["--max-records-per-batch", str(A_BATCH), "--compact"]
    loads = Loads(words, table / "_ottla" / name)
    assert loads.run_until_done([(1, "all")]) == 0
    rows = spark.read.parquet(str(table))
    assert sorted((row.partition, row.offset) for row in rows.collect()) == _coordinates(2)


@pytest.mark.timeout(600)
def test_delta_with_dead_letters(
    spark: SparkSession, bootstrap_servers: str, topic: MakeTopic, produce: Produce, tmp_path: Path
) -> None:
    from deltalake import DeltaTable

    name = topic(2)
    produce(name, RECORDS, value=json_value)
    table = tmp_path / "table"
    words = [name, "--to", f"delta:{table}", "-b", bootstrap_servers, "--format", "json"]
    words += ["--max-records-per-batch", str(A_BATCH), "--coordinates", "--schema", "n BIGINT"]
    loads = Loads(words, table / "_ottla" / name)
    assert loads.run_until_done([(2, "java")]) == 3
    rows = DeltaTable(table).to_pyarrow_table()
    good = list(zip(rows["_partition"].to_pylist(), rows["_offset"].to_pylist(), strict=True))
    dead = spark.read.parquet(f"{table}-dead-letters").collect()
    assert len(dead) == RECORDS // 100
    bad = [(row.partition, row.offset) for row in dead]
    assert sorted(good + bad) == _coordinates(2)
    # What killed attempts wrote is gone: every file is part of the table.
    parts = sum(1 for _ in (table / "data").rglob("part-*.parquet"))
    assert parts == len(DeltaTable(table).file_uris())


@pytest.mark.timeout(600)
def test_iceberg(
    bootstrap_servers: str, topic: MakeTopic, produce: Produce, tmp_path: Path
) -> None:
    from pyiceberg.catalog import load_catalog

    name = topic(2)
    produce(name, RECORDS)
    catalog = {"uri": f"sqlite:///{tmp_path}/c.db", "warehouse": f"file://{tmp_path}/w"}
    words = [name, "--to", "iceberg:c.db.events", "-b", bootstrap_servers]
    words += ["--max-records-per-batch", str(A_BATCH), "--checkpoint", str(tmp_path / "load")]
    for each in catalog.items():
        words += ["--catalog", "=".join(each)]
    loads = Loads(words, tmp_path / "load")
    assert loads.run_until_done([(2, "all")]) == 0
    rows = load_catalog("c", **catalog).load_table("db.events").scan().to_arrow()
    found = zip(rows["partition"].to_pylist(), rows["offset"].to_pylist(), strict=True)
    assert sorted(found) == _coordinates(2)


@pytest.mark.timeout(600)
def test_the_broker(
    spark: SparkSession, topic: MakeTopic, produce: Produce, tmp_path: Path
) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        servers = broker.bootstrap_servers
        name = topic(2, servers=servers)
        produce(name, RECORDS, servers=servers)
        planned = tmp_path / "table" / "_ottla" / name / "checkpoint" / "offsets" / "2"
        stopped = threading.Event()
        killer = threading.Thread(target=_kill_broker, args=(broker, planned.exists, stopped))
        killer.start()
        try:
            _load_until_done(spark, name, f"parquet:{tmp_path}/table", servers)
        finally:
            stopped.set()
            killer.join()
        rows = spark.read.parquet(f"{tmp_path}/table").collect()
        assert sorted((row.partition, row.offset) for row in rows) == _coordinates(2)


def _kill_broker(
    broker: BrokerProcess, is_time: Callable[[], bool], stopped: threading.Event
) -> None:
    while not is_time() and not stopped.wait(0.01):
        pass
    broker.kill()
    broker.start()


def _load_until_done(spark: SparkSession, name: str, to: str, servers: str) -> None:
    for _ in range(MOST_RUNS):
        try:
            ottla_spark.load(
                name, to, bootstrap_servers=servers, spark=spark, max_records_per_batch=A_BATCH
            )
        except (LoadError, ClientError):
            continue
        return
    raise AssertionError("the load did not end")


def _coordinates(partitions: int) -> list[tuple[int, int]]:
    each = RECORDS // partitions
    return [(partition, offset) for partition in range(partitions) for offset in range(each)]
