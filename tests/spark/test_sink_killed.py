"""A stream from topic to topic that is killed at random moments: each record is there once.

Everything is killed with SIGKILL: the driver, Java and the workers. A kill comes some time after
Spark has planned a certain batch, so that it falls into writing, deciding or committing.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from tests.harness.process_tree import kill_tree
from tests.support.spark_fixtures import MakeTopic, Produce

pytestmark = [pytest.mark.usefixtures("shared_java_classes"), pytest.mark.timeout(600)]
RECORDS = 2_000
A_BATCH = 250
PARTITIONS = 3
PATIENCE_S = 200
PROGRAM = """
import sys
import ottla_spark

servers, first, second, checkpoint = sys.argv[1:]
spark = ottla_spark.session("local[2]")
rows = ottla_spark.read_stream(
    spark, first, servers, startingOffsets="earliest", maxOffsetsPerTrigger="{a_batch}"
)
writer = rows.select("key", "value").writeStream.format("ottla").trigger(availableNow=True)
writer = writer.option("kafka.bootstrap.servers", servers).option("topic", second)
query = writer.option("checkpointLocation", checkpoint).start()
query.awaitTermination()
"""


def start(arguments: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM.replace("{a_batch}", str(A_BATCH)), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def kill_after(process: subprocess.Popen[str], planned: Path, delay_s: float) -> None:
    """Kill the process and its children when a batch is planned, or after that."""
    deadline = time.monotonic() + PATIENCE_S
    while process.poll() is None and not planned.exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    time.sleep(delay_s)  # not to wait for something: to hit anything
    kill_tree(process.pid)
    process.communicate()


def committed(servers: str, topic: str) -> Counter[bytes | None]:
    """Return the values that are visible to readers of committed records, once nothing is open."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "reading",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in range(PARTITIONS)])
    found: Counter[bytes | None] = Counter()
    ended = 0
    while ended < PARTITIONS:
        message = consumer.poll(PATIENCE_S)
        assert message is not None, f"only {found.total()}"
        if message.error() is None:
            found[message.value()] += 1
        else:
            ended += 1
    consumer.close()
    return found


def test_each_record_is_there_once_whatever_is_killed(
    bootstrap_servers: str, topic: MakeTopic, produce: Produce, tmp_path: Path
) -> None:
    first, second = topic(2), topic(PARTITIONS)
    produce(first, RECORDS)
    checkpoint = tmp_path / "checkpoint"
    arguments = [bootstrap_servers, first, second, str(checkpoint)]
    chance = random.Random(os.environ.get("OTTLA_TEST_SEED", time.time_ns()))
    for batch in (1, 3, 5):
        kill_after(start(arguments), checkpoint / "offsets" / str(batch), chance.uniform(0, 0.5))
    process = start(arguments)
    said, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, said
    assert committed(bootstrap_servers, second) == Counter(
        f"v{number}".encode() for number in range(RECORDS)
    )
