"""The demo of Ottla with a real client: `make demo`.

It starts a broker, creates a topic and produces messages. In between it restarts the broker. Then
it consumes all messages and checks that each arrives exactly once and in order. A consumer group
counts the messages while one of its members is killed. A cluster of three brokers loses the leader
of a partition to a SIGKILL under load: nothing is lost. A stream on Spark sums up orders from one
topic to another, and a load writes them into a table; all sums must agree. At the end, the demo
prints the steps and their speed.
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from demo_cluster import Failover
from demo_group import BROKER_SETTINGS, GroupRun
from demo_spark import (
    SparkRun,
    check_large,
    check_receipts,
    compare,
    kill_a_pipeline,
    produce_orders,
    read_minutes,
)
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from ottla.testing import Cluster

TOPIC = "events"
PARTITIONS = 6
VALUE_BYTES = 200
STEP_TIMEOUT_S = 120

console = Console()


class BrokerProcess:
    """Runs `ottla up` as a user would, with a data directory that is kept over restarts."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self._process: subprocess.Popen[str] | None = None
        self.bootstrap_servers = ""

    def start(self) -> float:
        """Start the broker. Return the seconds until it is ready."""
        port = self.bootstrap_servers.rpartition(":")[2] or "0"
        begin = time.perf_counter()
        command = [sys.executable, "-m", "ottla.cli.main", "up"]
        for name, value in BROKER_SETTINGS.items():
            command += ["--set", f"{name}={value}"]
        self._process = subprocess.Popen(
            [*command, "--port", port, "--data-dir", str(self._data_dir)],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        for line in self._process.stdout:
            words = [word for word in line.split() if ":" in word and word[-1].isdigit()]
            if words:
                self.bootstrap_servers = words[-1]
                return time.perf_counter() - begin
        raise SystemExit("the broker did not start; its messages are above")

    def stop(self) -> float:
        """Stop the broker cleanly. Return the seconds it takes."""
        assert self._process is not None
        begin = time.perf_counter()
        self._process.send_signal(signal.SIGTERM)
        code = self._process.wait(timeout=30)
        if code != 0:
            raise SystemExit(f"the broker ended with exit code {code}")
        self._process = None
        return time.perf_counter() - begin

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()


class Results:
    """The table at the end."""

    def __init__(self) -> None:
        self._table = Table(title="What happened", title_justify="left")
        self._table.add_column("step")
        for column in ("messages", "seconds", "messages/s", "MB/s"):
            self._table.add_column(column, justify="right")

    def add(self, step: str, seconds: float, messages: int = 0, size: int = 0) -> None:
        self._table.add_row(
            step,
            f"{messages:,}" if messages else "",
            f"{seconds:.2f}",
            f"{messages / seconds:,.0f}" if messages else "",
            f"{size / seconds / 1e6:,.1f}" if size else "",
        )

    def show(self) -> None:
        console.print(self._table)


def value_of(number: int) -> bytes:
    return b"%d " % number + b"." * (VALUE_BYTES - len(str(number)) - 1)


def create_topic(broker: BrokerProcess) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(timeout=STEP_TIMEOUT_S)


@contextlib.contextmanager
def progress_bar(description: str, total: int) -> Iterator[Progress]:
    columns = (
        TextColumn("{task.description:<28}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as progress:
        progress.add_task(description, total=total, rate="")
        yield progress


def advance(progress: Progress, done: int, begin: float) -> None:
    rate = done / max(time.perf_counter() - begin, 1e-9)
    progress.update(progress.task_ids[0], completed=done, rate=f"{rate:,.0f}/s")


def produce(broker: BrokerProcess, count: int, results: Results) -> None:
    """Produce `count` messages. Restart the broker after half of them."""
    acknowledged = 0

    def delivered(error: object, message: Message) -> None:
        nonlocal acknowledged
        if error is not None:
            raise SystemExit(f"a message was not delivered: {error}")
        acknowledged += 1

    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "enable.idempotence": True,
            "linger.ms": 20,
            "compression.type": "none",
            "queue.buffering.max.messages": 500_000,
            "reconnect.backoff.max.ms": 500,
            "log_level": 0,
        }
    )
    begin = time.perf_counter()
    down = 0.0
    with progress_bar("produce (restart in between)", count) as progress:
        for number in range(count):
            if number == count // 2:
                restart_begin = time.perf_counter()
                broker.stop()
                broker.start()
                down = time.perf_counter() - restart_begin
            partition = number % PARTITIONS
            while True:
                try:
                    producer.produce(
                        TOPIC, value_of(number), partition=partition, on_delivery=delivered
                    )
                    break
                except BufferError:
                    producer.poll(0.1)
            if number % 1000 == 0:
                producer.poll(0)
                advance(progress, acknowledged, begin)
        while producer.flush(0.1) and time.perf_counter() - begin < STEP_TIMEOUT_S:
            advance(progress, acknowledged, begin)
        advance(progress, acknowledged, begin)
    if acknowledged != count:
        raise SystemExit(f"only {acknowledged} of {count} messages were acknowledged")
    results.add("broker stopped and started again", down)
    results.add(
        "produce, acks=all, idempotent", time.perf_counter() - begin, count, count * VALUE_BYTES
    )


def consume(broker: BrokerProcess, count: int, results: Results) -> None:
    """Consume all messages and check them: each once, in order within its partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "demo",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(TOPIC, p, OFFSET_BEGINNING) for p in range(PARTITIONS)])
    expected = list(range(PARTITIONS))
    received = 0
    begin = time.perf_counter()
    with progress_bar("consume", count) as progress:
        while received < count:
            for message in consumer.consume(10_000, timeout=0.2):
                if message.error():
                    raise SystemExit(f"consuming failed: {message.error()}")
                number = int(message.value().split(b" ", 1)[0])
                partition = message.partition()
                if number != expected[partition]:
                    raise SystemExit(
                        f"partition {partition}: got message {number}, "
                        f"expected {expected[partition]}"
                    )
                expected[partition] += PARTITIONS
                received += 1
            advance(progress, received, begin)
            if time.perf_counter() - begin > STEP_TIMEOUT_S:
                raise SystemExit(f"only {received} of {count} messages were consumed")
    results.add("consume, checked", time.perf_counter() - begin, received, received * VALUE_BYTES)
    consumer.close()


def count_in_a_group(broker: BrokerProcess, count: int, results: Results) -> None:
    """Count the messages with a group of three consumers, and kill one of them."""
    begin = time.perf_counter()
    run = GroupRun(broker.bootstrap_servers, TOPIC, PARTITIONS)
    try:
        with progress_bar("a group of 3 (one is killed)", count) as progress:
            for counted in run.count(count):
                advance(progress, counted, begin)
    finally:
        run.close()
    if run.ledger.total != count:
        raise SystemExit(f"{run.ledger.total} messages were counted, not {count}")
    heirs = ", ".join(f"{number} to {name}" for number, name in sorted(run.heirs.items()))
    console.print(f"{run.killed} was killed; {run.moved_after_s:.1f} s later: partition {heirs}.")
    console.print(f"{run.ledger.repeated:,} messages arrived twice; each counted once.")
    results.add(
        "a group counts it, one killed", time.perf_counter() - begin, count, count * VALUE_BYTES
    )


def kill_a_leader(count: int, results: Results) -> None:
    """Start three brokers and kill the leader of a partition under load."""
    begin = time.perf_counter()
    with Cluster(3, processes=True, proxied=False) as cluster:
        results.add("three brokers start", time.perf_counter() - begin)
        failover = Failover(cluster)
        begin = time.perf_counter()
        with progress_bar("three brokers (leader killed)", count) as progress:
            failover.run(count, lambda done: advance(progress, done, begin))
        console.print(
            f"Broker {failover.killed} led and was killed; broker {failover.leader} leads."
            f" The next write was acknowledged after [bold]{failover.gap_s:.2f} s[/bold]."
        )
        console.print(f"All {count:,} acknowledged writes are there, once and in order.")
        results.add("leader killed to next acknowledged write", failover.gap_s)
        results.add("three brokers, acks=all, checked", time.perf_counter() - begin, count)


def stream_and_load(broker: BrokerProcess, count: int, directory: Path, results: Results) -> None:
    """Produce orders, sum them up per minute into another topic, load them, and compare."""
    servers = broker.bootstrap_servers
    begin = time.perf_counter()
    with progress_bar("orders, as JSON", count) as progress:
        made = produce_orders(servers, count, lambda done: advance(progress, done, begin))
    results.add("produce orders", time.perf_counter() - begin, count)
    with timed("a pipeline starts and is killed", results):
        batches = kill_a_pipeline(servers, directory)
    console.print(f"The pipeline was killed with SIGKILL in its batch {batches}.")
    with timed("Spark starts again", results):
        run = SparkRun(servers, directory)
    try:
        with timed("the pipeline goes on, topic to topic", results) as rows:
            rows.append(run.stream())
        with timed("load into a Delta table", results) as rows:
            rows.append(run.load())
        with timed("read the table and the topic, compare", results):
            shown = compare(made, read_minutes(servers), run.table())
            check_large(count, run.large())
            check_receipts(servers, count)
    finally:
        run.close()
    console.print(shown)


@contextlib.contextmanager
def timed(step: str, results: Results) -> Iterator[list[int]]:
    """Show a step without a progress bar. The step may append its number of rows to the list."""
    rows: list[int] = []
    begin = time.perf_counter()
    with console.status(f"{step} ..."):
        yield rows
    results.add(step, time.perf_counter() - begin, sum(rows))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=300_000)
    parser.add_argument("--orders", type=int, default=100_000)
    parser.add_argument("--payments", type=int, default=50_000)
    given = parser.parse_args()
    count = given.messages
    results = Results()
    with tempfile.TemporaryDirectory(prefix="ottla-demo-") as directory:
        broker = BrokerProcess(Path(directory) / "broker")
        try:
            results.add("broker start to answering", broker.start())
            console.print(f"A broker answers on [bold]{broker.bootstrap_servers}[/bold]")
            create_topic(broker)
            produce(broker, count, results)
            consume(broker, count, results)
            count_in_a_group(broker, count, results)
            kill_a_leader(given.payments, results)
            stream_and_load(broker, given.orders, Path(directory) / "spark", results)
            results.add("clean stop", broker.stop())
        finally:
            broker.kill()
    results.show()
    console.print(f"All {count:,} messages arrived once and in order.")
    console.print(
        f"All {given.orders:,} orders are in the stream's sums, in the table and in the topic of"
        " receipts, once, although the pipeline was killed."
    )


if __name__ == "__main__":
    main()
