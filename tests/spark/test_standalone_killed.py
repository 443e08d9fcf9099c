"""Loads on a standalone Spark under kills: executors, workers, the driver and the broker.

A kill comes some time after Spark has planned a certain batch, so that it falls into reading,
writing or committing. Executors and workers that die do not end a load; drivers do, and then
the same command goes on.
"""

from __future__ import annotations

import os
import random
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.harness.deadline import eventually
from tests.harness.process import COMMAND, BrokerProcess
from tests.harness.process_tree import kill_tree
from tests.harness.standalone_spark import StandaloneSpark
from tests.support.spark_fixtures import MakeTopic, Produce

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.usefixtures("shared_java_classes")
RECORDS = 4000
A_BATCH = 800
PARTITIONS = 2
PATIENCE_S = 300
MOST_RUNS = 5
WANTED = [(p, offset) for p in range(PARTITIONS) for offset in range(RECORDS // PARTITIONS)]
LONGEST_PAUSE_S = 0.6


class Load:
    """One `ottla load` on the standalone Spark, which can be run again and killed."""

    def __init__(self, standalone: StandaloneSpark, topic: str, to: str, servers: str) -> None:
        self.words = [topic, "--to", to, "-b", servers, "--master", standalone.master]
        self.words += ["--max-records-per-batch", str(A_BATCH)]
        self._standalone = standalone
        self._chance = random.Random(os.environ.get("OTTLA_TEST_SEED", time.time_ns()))
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Start the command; it goes on where the last one stopped."""
        self._process = subprocess.Popen(
            [*COMMAND, "load", *self.words],
            env=self._standalone.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def when_planned(self, offsets: Path, batch: int, kill: Callable[[], None]) -> None:
        """Kill some moment after Spark has planned this batch."""
        eventually(
            lambda: (offsets / str(batch)).exists() or self._ended,
            f"batch {batch}",
            PATIENCE_S,
        )
        assert not self._ended, self.end()
        time.sleep(self._chance.uniform(0, LONGEST_PAUSE_S))  # to hit anything, not to wait
        kill()

    def kill(self) -> None:
        """Kill the driver: the command and its Java process."""
        assert self._process is not None
        kill_tree(self._process.pid)
        self._process.communicate()
        self._process = None

    def end(self) -> tuple[int, str]:
        """Wait for its end; the exit code and what it said."""
        assert self._process is not None
        _, said = self._process.communicate(timeout=PATIENCE_S)
        code, self._process = self._process.returncode, None
        return code, said

    def close(self) -> None:
        """Leave nothing behind."""
        if self._process is not None:
            self.kill()

    @property
    def _ended(self) -> bool:
        assert self._process is not None
        return self._process.poll() is not None


@pytest.fixture
def loads(standalone: StandaloneSpark) -> Iterator[Callable[[str, str, str], Load]]:
    made: list[Load] = []

    def make(topic: str, to: str, servers: str) -> Load:
        made.append(Load(standalone, topic, to, servers))
        return made[-1]

    yield make
    for load in made:
        load.close()


@pytest.mark.timeout(600)
def test_executors_die_under_a_load_to_parquet(
    spark: SparkSession,
    standalone: StandaloneSpark,
    loads: Any,
    bootstrap_servers: str,
    topic: MakeTopic,
    produce: Produce,
    tmp_path: Path,
) -> None:
    name = topic(PARTITIONS)
    produce(name, RECORDS)
    table = tmp_path / "table"
    offsets = table / "_ottla" / name / "checkpoint" / "offsets"
    load = loads(name, f"parquet:{table}", bootstrap_servers)
    load.start()
    load.when_planned(offsets, 1, lambda: kill_executors(standalone, all_of_them=True))
    load.when_planned(offsets, 2, lambda: kill_executors(standalone))
    assert load.end()[0] == 0
    rows = spark.read.parquet(str(table)).collect()
    assert sorted((row.partition, row.offset) for row in rows) == WANTED
    assert standalone.executors_of("ottla") >= 5  # two, two in place of them, one in place of one


@pytest.mark.timeout(600)
def test_an_executor_and_the_driver_die_under_a_load_to_delta(
    standalone: StandaloneSpark,
    loads: Any,
    bootstrap_servers: str,
    topic: MakeTopic,
    produce: Produce,
    tmp_path: Path,
) -> None:
    from deltalake import DeltaTable

    name = topic(PARTITIONS)
    produce(name, RECORDS)
    table = tmp_path / "table"
    offsets = table / "_ottla" / name / "checkpoint" / "offsets"
    load = loads(name, f"delta:{table}", bootstrap_servers)
    load.start()
    load.when_planned(offsets, 1, lambda: kill_executors(standalone))
    load.when_planned(offsets, 2, load.kill)
    load.start()
    assert load.end()[0] == 0
    rows = DeltaTable(table).to_pyarrow_table(columns=["partition", "offset"])
    assert coordinates(rows) == WANTED


@pytest.mark.timeout(600)
def test_a_worker_and_the_broker_die_under_a_load_to_iceberg(
    standalone: StandaloneSpark, loads: Any, topic: MakeTopic, produce: Produce, tmp_path: Path
) -> None:
    from pyiceberg.catalog import load_catalog

    with BrokerProcess(tmp_path / "data") as broker:
        servers = broker.bootstrap_servers
        name = topic(PARTITIONS, servers=servers)
        produce(name, RECORDS, servers=servers)
        catalog = {"uri": f"sqlite:///{tmp_path}/c.db", "warehouse": f"file://{tmp_path}/w"}
        load = loads(name, "iceberg:c.db.events", servers)
        load.words += ["--checkpoint", str(tmp_path / "load")]
        for each in catalog.items():
            load.words += ["--catalog", "=".join(each)]
        offsets = tmp_path / "load" / "checkpoint" / "offsets"
        load.start()
        load.when_planned(offsets, 1, lambda: kill_worker(standalone))
        load.when_planned(offsets, 2, lambda: kill_and_start(broker))
        code, said = load.end()
        for _ in range(MOST_RUNS):
            if code == 0:
                break
            assert code == 1, said
            assert "Traceback" not in said
            load.start()
            code, said = load.end()
        assert code == 0, said
    table = load_catalog("c", **catalog).load_table("db.events")
    assert coordinates(table.scan(selected_fields=("partition", "offset")).to_arrow()) == WANTED


def coordinates(rows: Any) -> list[tuple[int, int]]:
    return sorted(zip(rows["partition"].to_pylist(), rows["offset"].to_pylist(), strict=True))


def kill_executors(standalone: StandaloneSpark, all_of_them: bool = False) -> None:
    """Kill the oldest executor, or all. Their Python processes have to notice it."""
    running = eventually(standalone.executors, "executors", PATIENCE_S)
    for executor in running if all_of_them else running[:1]:
        executor.kill()


def kill_worker(standalone: StandaloneSpark) -> None:
    running = eventually(standalone.executors, "executors", PATIENCE_S)
    standalone.kill_worker_of(running[0])


def kill_and_start(broker: BrokerProcess) -> None:
    broker.kill()
    broker.start()
