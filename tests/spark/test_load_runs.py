"""`--every` and `--continuous` load new records until they are stopped."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ottla_spark.api import load
from ottla_spark.loads.options.load_options import Continuous, Every, LoadOptions
from ottla_spark.loads.options.value_format import ValueFormat
from ottla_spark.loads.run.listener import Listener
from ottla_spark.loads.run.load_run import run_load
from ottla_spark.loads.targets.address import TableAddress
from tests.harness.deadline import eventually
from tests.harness.process import COMMAND
from tests.support.spark_fixtures import MakeTopic, Produce

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ottla_spark.loads.run.tally import Tally

PATIENCE_S = 120
ROUNDS = 3
A_ROUND = 20


class Feeds(Listener):
    """Whenever everything so far is in the table, gives more; in the end it stops the load."""

    def __init__(self, more: Callable[[int], None]) -> None:
        self.stop = threading.Event()
        self._more = more
        self._given = 1

    def progress(self, tally: Tally, lag: int) -> None:
        if tally.rows < self._given * A_ROUND:
            return
        if self._given == ROUNDS:
            self.stop.set()
            return
        self._more(self._given * A_ROUND)
        self._given += 1


def test_records_that_arrive_during_the_load_are_loaded(
    spark: SparkSession, bootstrap_servers: str, topic: MakeTopic, produce: Produce, tmp_path: Path
) -> None:
    name = topic(2)
    produce(name, A_ROUND)
    options = LoadOptions(
        topic=name,
        to=TableAddress("parquet", f"{tmp_path}/table"),
        client={"bootstrap.servers": bootstrap_servers},
        when=Continuous(0.2),
    )
    feeds = Feeds(lambda first: produce(name, A_ROUND, first=first))
    result = run_load(spark, options, feeds, feeds.stop)
    assert (result.tally.rows, result.exit_code) == (ROUNDS * A_ROUND, 0)
    assert result.tally.batches >= ROUNDS
    rows = spark.read.parquet(f"{tmp_path}/table").collect()
    wanted = sorted(f"v{number}".encode() for number in range(ROUNDS * A_ROUND))
    assert sorted(bytes(row.value) for row in rows) == wanted


def test_a_stop_before_the_first_record_is_no_failure(
    spark: SparkSession, bootstrap_servers: str, topic: MakeTopic, tmp_path: Path
) -> None:
    stop = threading.Event()

    class Stops(Listener):
        def say(self, line: str) -> None:
            assert "is empty" in line
            stop.set()

    options = LoadOptions(
        topic=topic(),
        to=TableAddress("parquet", f"{tmp_path}/table"),
        client={"bootstrap.servers": bootstrap_servers},
        when=Every(60),
        format=ValueFormat.JSON,
    )
    result = run_load(spark, options, Stops(), stop)
    assert (result.tally.records, result.exit_code) == (0, 0)


def test_a_stop_while_spark_starts_is_no_failure(
    spark: SparkSession, bootstrap_servers: str, topic: MakeTopic, produce: Produce, tmp_path: Path
) -> None:
    name, table = topic(), tmp_path / "table"
    produce(name, 1)
    stop = threading.Event()
    stop.set()
    result = load(
        name, f"parquet:{table}", bootstrap_servers=bootstrap_servers, continuous=True, stop=stop
    )
    assert (result.tally.records, result.exit_code) == (0, 0)
    with pytest.raises(KeyboardInterrupt):
        load(name, f"parquet:{table}", bootstrap_servers=bootstrap_servers, stop=stop)
    assert not table.exists()


def ask_to_stop(number: int, before: object, pause_s: float) -> None:
    """Send this process a signal, some time after it got another handler than `before`."""
    eventually(lambda: signal.getsignal(number) is not before, "a load that listens", PATIENCE_S)
    time.sleep(pause_s)  # to hit anything, not to wait
    os.kill(os.getpid(), number)


def test_a_signal_at_any_moment_ends_a_load_well(
    spark: SparkSession, bootstrap_servers: str, topic: MakeTopic, produce: Produce, tmp_path: Path
) -> None:
    name = topic()
    wanted: list[int] = []
    for turn, number in enumerate((signal.SIGTERM, signal.SIGINT) * 3):
        produce(name, 1, first=turn)
        wanted.append(turn)
        told = (number, signal.getsignal(number), 0.35 + 0.23 * turn)
        asked = threading.Thread(target=ask_to_stop, args=told)
        asked.start()
        result = load(
            name,
            f"parquet:{tmp_path}/table",
            bootstrap_servers=bootstrap_servers,
            spark=spark,
            every="10ms",
        )
        asked.join()
        assert result.exit_code == 0
        assert spark.range(turn).count() == turn, "Spark answers what it was asked"
    load(name, f"parquet:{tmp_path}/table", bootstrap_servers=bootstrap_servers, spark=spark)
    rows = spark.read.parquet(f"{tmp_path}/table").collect()
    assert sorted(row.offset for row in rows) == wanted


def test_an_interrupted_load_reports_it(
    spark: SparkSession, bootstrap_servers: str, topic: MakeTopic, produce: Produce, tmp_path: Path
) -> None:
    name = topic()
    produce(name, 1)
    stop = threading.Event()
    stop.set()
    with pytest.raises(KeyboardInterrupt):
        load(
            name,
            f"parquet:{tmp_path}/table",
            bootstrap_servers=bootstrap_servers,
            spark=spark,
            stop=stop,
        )


@pytest.mark.timeout(240)
@pytest.mark.usefixtures("shared_java_classes")
def test_the_command_every_second_from_an_empty_topic_until_ctrl_c(
    spark: SparkSession, bootstrap_servers: str, topic: MakeTopic, produce: Produce, tmp_path: Path
) -> None:
    name = topic()
    table, group = tmp_path / "table", f"group-{name}"
    words = [name, "--to", f"parquet:{table}", "--every", "1s", "--format", "json", "--json"]
    words += ["--group", group, "-b", bootstrap_servers, "--master", "local[1]"]
    running = subprocess.Popen(
        [*COMMAND, "load", *words],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    checkpoint = table / "_ottla" / name / "checkpoint"

    def loaded(records: int) -> bool:
        assert running.poll() is None, running.communicate()
        done = [int(path.name) for path in checkpoint.glob("commits/[0-9]*")]
        if not done:
            return False
        planned = (checkpoint / "offsets" / str(max(done))).read_text().splitlines()[-1]
        return bool(json.loads(planned) == {name: {"0": records}})

    try:
        for first in (0, 5):
            produce(name, 5, first=first, value=lambda number: b'{"n": %d}' % number)
            eventually(partial(loaded, first + 5), f"{first + 5} records", PATIENCE_S)
        running.send_signal(signal.SIGINT)
        said, told = running.communicate(timeout=PATIENCE_S)
    finally:
        running.kill()
        running.communicate()
    assert running.returncode == 0, told
    assert "Traceback" not in told
    assert "WARNING" not in told, "Java says nothing at its start"
    summary = json.loads(said)
    assert (summary["rows"], summary["lag"], summary["group"]) == (10, 0, group)
    assert sorted(row.n for row in spark.read.parquet(str(table)).collect()) == list(range(10))
