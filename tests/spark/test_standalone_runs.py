"""A standalone Spark with two workers: reads, streams, pipelines and what workers need installed.

Drivers are processes of their own; this one may hold a local Spark.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from textwrap import dedent

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

import ottla
from tests.harness.process import COMMAND
from tests.harness.standalone_spark import StandaloneSpark
from tests.support.spark_fixtures import MakeTopic, Produce

pytestmark = pytest.mark.usefixtures("shared_java_classes")
RECORDS = 600
PATIENCE_S = 200
PROGRAM = """
import json, sys
import ottla_spark
from ottla_spark.session import session

master, servers, first, second, directory = sys.argv[1:]
spark = session(master, app_name="reads")
rows = ottla_spark.read(spark, first, servers, minPartitions="4")
found = rows.selectExpr("partition", "offset", "string(key)", "string(value)").collect()
stream = ottla_spark.read_stream(
    spark, first, servers, startingOffsets="earliest", maxOffsetsPerTrigger="200"
)
query = (
    stream.select("key", "value", "partition")
    .writeStream.format("ottla")
    .queryName(f"copy-{first}")
    .option("kafka.bootstrap.servers", servers)
    .option("topic", second)
    .option("checkpointLocation", directory)
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
print(json.dumps({"master": spark.sparkContext.master, "rows": found}))
"""
PIPELINE = """\
    name: sums
    conf: {spark.sql.shuffle.partitions: 2}
    sources:
      numbers: {topic: FIRST, format: json, schema: "n long"}
    steps:
      doubled: {python: "fns.py:doubled", from: numbers}
      sums: {sql: "SELECT n % 3 k, sum(m) total FROM doubled GROUP BY 1", unbounded: true}
    sinks:
      lake: {from: doubled, table: "parquet:lake"}
      totals: {from: sums, topic: SECOND, key: k, mode: complete}
    """
HIDDEN_PROGRAM = """
import sys
import ottla_spark
from ottla_spark.loads.errors import LoadUsageError
from ottla_spark.pipelines.spec.problems import PipelineError
from ottla_spark.session import session

master, servers, topic, shared, hidden = sys.argv[1:]
spark = session(master, app_name="hidden")
options = {"bootstrap_servers": servers, "spark": spark}
for to, dead in ((hidden, shared), (shared, hidden)):
    try:
        ottla_spark.load(topic, f"delta:{to}/table", dead_letters=f"parquet:{dead}/dead", **options)
    except LoadUsageError as error:
        print(error)
try:
    ottla_spark.pipeline(f"{shared}/hidden.yaml", **options)
except PipelineError as error:
    print(error)
"""
HIDDEN_PIPELINE = """\
    state: HIDDEN/state
    sources:
      numbers: {topic: TOPIC}
    sinks:
      lake: {from: numbers, table: "parquet:HIDDEN/lake"}
    """
FUNCTIONS = """\
    from pyspark.sql.functions import udf

    def doubled(rows):
        @udf("long")
        def twice(n):
            return 2 * n
        return rows.select("n", twice("n").alias("m"))
    """


def run(
    standalone: StandaloneSpark, *command: str, **variables: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        env=standalone.environment() | variables,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def values(servers: str, topic: str, count: int, partitions: int) -> dict[int, list[bytes | None]]:
    """Return the values of each partition in order: that many in all, and not one more."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "reading"})
    consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in range(partitions)])
    found: dict[int, list[bytes | None]] = defaultdict(list)
    for left in range(count, 0, -1):
        message = consumer.poll(10)
        assert message is not None, f"{left} of {count} are missing"
        partition = message.partition()
        assert partition is not None
        found[partition].append(message.value())
    assert consumer.poll(0.1) is None
    consumer.close()
    return found


@pytest.mark.timeout(400)
def test_batches_and_streams(
    standalone: StandaloneSpark,
    bootstrap_servers: str,
    topic: MakeTopic,
    produce: Produce,
    tmp_path: Path,
) -> None:
    first, second = topic(2), topic(2)
    produce(first, RECORDS)
    words = [standalone.master, bootstrap_servers, first, second, str(tmp_path / "checkpoint")]
    ran = run(standalone, sys.executable, "-c", PROGRAM, *words)
    assert ran.returncode == 0, ran.stderr
    told = json.loads(ran.stdout)
    assert told["master"] == standalone.master
    wanted = [[n % 2, n // 2, f"k{n}", f"v{n}"] for n in range(RECORDS)]
    assert sorted(told["rows"]) == sorted(wanted)
    # Each partition is copied in order, over several batches.
    assert len(list((tmp_path / "checkpoint" / "commits").glob("[0-9]*"))) == RECORDS // 200
    assert values(bootstrap_servers, second, RECORDS, 2) == {
        partition: [f"v{n}".encode() for n in range(partition, RECORDS, 2)] for partition in (0, 1)
    }
    assert standalone.executors_of("reads") == 2


@pytest.mark.timeout(400)
def test_a_pipeline(
    standalone: StandaloneSpark,
    bootstrap_servers: str,
    topic: MakeTopic,
    produce: Produce,
    tmp_path: Path,
) -> None:
    first, second = topic(2), topic(1)
    produce(first, RECORDS, value=lambda n: json.dumps({"n": n}).encode())
    file = tmp_path / "sums.yaml"
    file.write_text(dedent(PIPELINE).replace("FIRST", first).replace("SECOND", second))
    (tmp_path / "fns.py").write_text(dedent(FUNCTIONS))
    words = [str(file), "--once", "--master", standalone.master, "-b", bootstrap_servers]
    ran = run(standalone, *COMMAND, "pipeline", "run", *words)
    assert ran.returncode == 0, ran.stderr
    wanted = {k: sum(2 * n for n in range(k, RECORDS, 3)) for k in range(3)}
    (totals,) = values(bootstrap_servers, second, 3, 1).values()
    assert {row["k"]: row["total"] for row in map(json.loads, filter(None, totals))} == wanted
    import pyarrow.parquet as pq

    rows = pq.read_table(tmp_path / "lake").to_pylist()
    assert sorted((row["n"], row["m"]) for row in rows) == [(n, 2 * n) for n in range(RECORDS)]
    assert standalone.executors_of("sums") == 2


@pytest.mark.timeout(400)
def test_workers_without_ottla_are_named(
    standalone: StandaloneSpark, bootstrap_servers: str, topic: MakeTopic, tmp_path: Path
) -> None:
    # The driver finds its modules by a path that means nothing to executors; those find this one.
    (tmp_path / "pyspark_ottla.py").write_text("raise ModuleNotFoundError('no pyspark_ottla')")
    here = os.path.relpath(Path(ottla.__file__).parents[1])
    words = ["--to", f"delta:{tmp_path}/table", "--master", standalone.master]
    words += ["-b", bootstrap_servers, "--conf", f"spark.executorEnv.PYTHONPATH={tmp_path}"]
    ran = run(standalone, *COMMAND, "load", topic(), *words, PYTHONPATH=here)
    assert ran.returncode == 2, ran.stderr
    assert "says: no pyspark_ottla. Install ottla[spark]" in ran.stderr


@pytest.mark.timeout(400)
def test_places_that_only_the_driver_sees_are_refused(
    standalone: StandaloneSpark, bootstrap_servers: str, topic: MakeTopic, tmp_path: Path
) -> None:
    shared, hidden = tmp_path / "shared", tmp_path / "hidden"
    for directory in (shared, hidden):
        directory.mkdir()
    alone = ["unshare", "-rm", "sh", "-c", 'mount -t tmpfs none "$0" && exec "$@"', str(hidden)]
    if run(standalone, *alone, "true").returncode:
        pytest.skip("needs user namespaces, to hide files of the driver from the executors")
    name = topic()
    text = dedent(HIDDEN_PIPELINE).replace("TOPIC", name).replace("HIDDEN", str(hidden))
    (shared / "hidden.yaml").write_text(text)
    words = [standalone.master, bootstrap_servers, name, str(shared), str(hidden)]
    ran = run(standalone, *alone, sys.executable, "-c", HIDDEN_PROGRAM, *words)
    assert ran.returncode == 0, ran.stderr
    table, dead, state, lake = ran.stdout.splitlines()
    assert f"does not see {hidden}/table as this machine does" in table
    assert f"does not see {hidden}/dead as this machine does" in dead
    assert "hidden.yaml:1: state: the Spark worker on" in state
    assert f"does not see {hidden}/state as this machine does" in state
    assert "hidden.yaml:5: sinks.lake.table: the Spark worker on" in lake
    assert f"does not see {hidden}/lake as this machine does" in lake
    assert not list(shared.rglob("_ottla-seen-*"))
