"""Writes orders, sums them per minute with a pipeline, loads them into a table, and compares.

The pipeline is killed in the middle and started again: each order gets one receipt.
demo.py runs it. The orders are generated here, so the expected sums of the pipeline and the table
are known exactly. Any difference ends the demo.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic
from rich.table import Table

import ottla_spark

TOPIC = "orders"
MINUTES_TOPIC = "orders-per-minute"
RECEIPTS_TOPIC = "receipts"
PARTITIONS = 4
START = datetime(2026, 1, 1, 12, tzinfo=UTC)
MINUTES = 6
LARGE_CENTS = 9_000
TIMEOUT_S = 60.0
PIPELINE = Path(__file__).parent / "orders.yaml"


@dataclass
class Sums:
    """The number of orders, and their sum in cents."""

    orders: int = 0
    cents: int = 0

    def add(self, cents: int) -> None:
        self.orders += 1
        self.cents += cents


def orders(count: int) -> Iterator[tuple[int, datetime, int]]:
    """Yield the number, time and cents of each order, spread evenly over the minutes."""
    step = timedelta(minutes=MINUTES) / count
    for number in range(count):
        yield number, START + number * step, 100 + number * 7919 % 9_900


def minute_of(at: datetime) -> str:
    return at.strftime("%H:%M")


def produce_orders(
    bootstrap_servers: str, count: int, advance: Callable[[int], None]
) -> dict[str, Sums]:
    """Write the orders as JSON; return their sums by minute."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(timeout=TIMEOUT_S)
    settings = {"bootstrap.servers": bootstrap_servers, "enable.idempotence": True}
    producer = Producer({**settings, "linger.ms": 20, "queue.buffering.max.messages": 1_000_000})
    made: defaultdict[str, Sums] = defaultdict(Sums)
    for number, at, cents in orders(count):
        made[minute_of(at)].add(cents)
        order = {"id": number, "customer": number % 100, "cents": cents, "at": at.isoformat()}
        producer.produce(TOPIC, json.dumps(order), key=str(number % 100))
        if number % 1000 == 0:
            producer.poll(0)
            advance(number)
    if producer.flush(TIMEOUT_S):
        raise SystemExit("not all orders were acknowledged")
    advance(count)
    return dict(made)


def kill_a_pipeline(bootstrap_servers: str, directory: Path) -> int:
    """Start the pipeline as a process and kill all of it in the middle of its work.

    Return how many batches of receipts it had planned by then.
    """
    directory.mkdir()
    shutil.copy(PIPELINE, directory)
    words = ["pipeline", "run", PIPELINE.name, "--once", "-b", bootstrap_servers]
    process = subprocess.Popen(
        [Path(sys.executable).with_name("ottla"), *words],
        cwd=directory,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    planned = directory / "state" / "orders" / "receipts" / "offsets"
    while process.poll() is None and not (planned / "1").exists():
        time.sleep(0.01)
    if process.poll() is not None:
        raise SystemExit(f"the pipeline ended too early:\n{process.communicate()[0]}")
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    return len([name for name in os.listdir(planned) if name.isdigit()])


class SparkRun:
    """One Spark session for the pipeline and the load. The pipeline goes on where it was killed."""

    def __init__(self, bootstrap_servers: str, directory: Path) -> None:
        self._servers = bootstrap_servers
        self._directory = directory
        self._spark = ottla_spark.session("local[*]", app_name="demo")

    def stream(self) -> int:
        """Run the pipeline once; return the number of rows that its queries read."""
        pipeline = ottla_spark.pipeline(
            self._directory / PIPELINE.name, self._spark, bootstrap_servers=self._servers
        )
        return sum(query.rows for query in pipeline.run(once=True))

    def load(self) -> int:
        """Load the topic into a Delta table; return the number of records."""
        result = ottla_spark.load(
            TOPIC,
            f"delta:{self._directory / 'lake' / 'orders'}",
            spark=self._spark,
            bootstrap_servers=self._servers,
            format="json",
            schema="id long, customer int, cents long, at timestamp",
        )
        return result.tally.records

    def table(self) -> dict[str, Sums]:
        """Return the sums of the Delta table by minute."""
        from deltalake import DeltaTable

        rows = DeltaTable(str(self._directory / "lake" / "orders")).to_pyarrow_table()
        if len(set(rows["id"].to_pylist())) != rows.num_rows:
            raise SystemExit("the table has some orders twice")
        found: defaultdict[str, Sums] = defaultdict(Sums)
        for at, cents in zip(rows["at"].to_pylist(), rows["cents"].to_pylist(), strict=True):
            found[minute_of(at)].add(cents)
        return dict(found)

    def large(self) -> Sums:
        """Return the sums of the pipeline's table of large orders."""
        found = Sums()
        path = str(self._directory / "lake" / "large-orders")
        for row in self._spark.read.parquet(path).select("cents").collect():
            found.add(row.cents)
        return found

    def close(self) -> None:
        self._spark.stop()


def committed(bootstrap_servers: str, topic: str) -> Iterator[Message]:
    """Yield the committed records of a topic, from the first to the last."""
    settings = {"bootstrap.servers": bootstrap_servers, "group.id": "demo"}
    consumer = Consumer(
        {**settings, "isolation.level": "read_committed", "enable.partition.eof": True}
    )
    partitions = consumer.list_topics(topic, timeout=TIMEOUT_S).topics[topic].partitions
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in partitions])
    ended: set[int | None] = set()
    deadline = time.monotonic() + TIMEOUT_S
    while len(ended) < len(partitions):
        if time.monotonic() > deadline:
            raise SystemExit(f"the end of topic {topic} is not reached")
        for message in consumer.consume(1000, timeout=0.2):
            error = message.error()
            if error is None:
                yield message
            elif error.code() == KafkaError._PARTITION_EOF:
                ended.add(message.partition())
            else:
                raise SystemExit(f"consuming failed: {error}")
    consumer.close()


def read_minutes(bootstrap_servers: str) -> dict[str, Sums]:
    """Return the last sums of each minute in the topic that the pipeline writes."""
    found: dict[str, Sums] = {}
    for message in committed(bootstrap_servers, MINUTES_TOPIC):
        minute = json.loads(message.value())
        at = datetime.fromisoformat(minute["minute"]).astimezone(UTC)
        found[minute_of(at)] = Sums(minute["orders"], minute["cents"])
    return found


def check_receipts(bootstrap_servers: str, count: int) -> None:
    """Exit unless the topic of receipts has exactly one for each order."""
    ids = [json.loads(m.value())["id"] for m in committed(bootstrap_servers, RECEIPTS_TOPIC)]
    if sorted(ids) != list(range(count)):
        twice, missing = len(ids) - len(set(ids)), count - len(set(ids))
        raise SystemExit(f"receipts: {twice} are there twice, {missing} are missing")


def compare(made: dict[str, Sums], streamed: dict[str, Sums], loaded: dict[str, Sums]) -> Table:
    """Return a table with a line for each minute; exit if the sums differ."""
    if not made == streamed == loaded:
        raise SystemExit(f"the figures differ:\n{made}\n{streamed}\n{loaded}")
    table = Table(title="The figures add up", title_justify="left")
    table.add_column("minute")
    for column in ("orders made", "by the stream", "in the table", "cents, in all three"):
        table.add_column(column, justify="right")
    for minute in sorted(made):
        three = [source[minute].orders for source in (made, streamed, loaded)]
        table.add_row(minute, *(f"{orders:,}" for orders in three), f"{made[minute].cents:,}")
    return table


def check_large(count: int, found: Sums) -> None:
    """Exit unless the table of large orders has exactly the large orders."""
    expected = Sums()
    for _, _, cents in orders(count):
        if cents >= LARGE_CENTS:
            expected.add(cents)
    if found != expected:
        raise SystemExit(f"large orders: {found} in the table, {expected} were made")
