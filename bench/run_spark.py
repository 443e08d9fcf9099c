"""Measures the Spark source `ottla`: `python bench/run_spark.py [--quick]`.

Spark reads the same topics of one Ottla broker with its own Kafka connector and with `ottla`, in
one session with two cores, in turn. Without Maven or Java 17 for the connector, only `ottla` is
measured.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from types import FrameType

from rich.console import Console

from harness.machine import others_at_work
from harness.metrics import Better, Metric
from harness.problem import BenchError
from harness.report import halves_around_table, write_markdown
from harness.systems import Ottla
from ottla_spark.session import session
from spark.connector import connector_jars
from spark.empty_source import EmptySource
from spark.fill import Topic, fill
from spark.ready_source import NAME as READY
from spark.ready_source import ReadySource, decompression_s
from spark.report import BEGIN, END, Measured, markdown, print_table, setting
from spark.works import AT_LEAST_ONCE, KAFKA, OTTLA, Bench

CORES = 2
ROUNDS = 3
WARM_UP_ROUNDS = 2
WARM_UP_READS = 50
WORKS = ("stream", "read", "load", "copy", "memory")
CODECS = ("none", "lz4", "zstd")
SIZES = ((100, 12_000_000), (1024, 1_200_000))  # 1.2 GB of values in each topic
BIG_RECORDS = 10_000_000  # of 1 KB: 10 GB
console = Console(width=None if sys.stdout.isatty() else 140)


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of the records, one round")
    parser.add_argument("--rounds", type=int, metavar="N", help="the number of rounds that count")
    parser.add_argument("--only", choices=WORKS, action="append")
    parser.add_argument(
        "--markdown", type=Path, metavar="FILE", help="write the table to this page"
    )
    return parser.parse_args()


def topics(quick: bool) -> list[Topic]:
    """Return the topics to read."""
    return [
        Topic(f"{codec}-{size}", size, codec, records // (10 if quick else 1))
        for size, records in SIZES
        for codec in CODECS
    ]


def filled(servers: str, topic: Topic) -> Topic:
    """Create the topic and write its records."""
    console.print(f"filling {topic.name}: {topic.written:,} records")
    fill(servers, topic)
    return topic


def label(topic: Topic) -> str:
    """Return a description of the topic."""
    size = f"{topic.value_bytes} B" if topic.value_bytes < 1024 else "1 KiB"
    return f"{size}, {'plain' if topic.codec == 'none' else topic.codec}"


class Run:
    """One run of all measurements."""

    def __init__(self, bench: Bench, rounds: int, *, with_connector: bool) -> None:
        self._bench = bench
        self._rounds = rounds
        self._sources = (KAFKA, OTTLA) if with_connector else (OTTLA,)
        self.rows: list[Measured] = []
        self.remarks: list[str] = []

    def warm_up(self, small: Topic) -> None:
        """Do small reads until Java has compiled the code that plans and starts a read."""
        console.print("warming up ...")
        for _ in range(WARM_UP_READS):
            for name in (*self._sources, READY):
                self._bench.read(name, small)

    def reads(self, wanted: list[Topic]) -> None:
        """Measure batch reads to the noop sink, in thousand rows per second."""
        for topic in wanted:
            seconds = self._alternate(topic, self._bench.read, READY)
            metric = Metric("read", f"read, {label(topic)}", "k rows/s", Better.HIGHER, 3, 5)
            self._add(metric, topic, seconds[KAFKA], seconds[OTTLA])
            self._tell_most(topic, seconds)

    def _tell_most(self, topic: Topic, seconds: dict[str, list[float]]) -> None:
        """Return one line about the best that any source in Python could reach here."""
        handing_over, codec = min(seconds[READY]), decompression_s(topic)
        least = handing_over + codec / CORES
        text = f"read, {label(topic)}: handing over batches made before takes {handing_over:.2f} s"
        text += f", the codec {codec:.2f} s of CPU besides (the best rounds)" if codec else ""
        if seconds[KAFKA]:
            text += f": no source in Python gets beyond {median(seconds[KAFKA]) / least:.2f}x"
        self.remarks.append(f"{text} (this one: {median(seconds[OTTLA]):.2f} s).")

    def loads(self, wanted: list[Topic]) -> None:
        """Measure loads to Parquet, compared with the connector and with Parquet to Parquet."""
        for topic in wanted:
            seconds = self._alternate(topic, self._bench.load)
            again = [self._bench.rewrite() for _ in range(self._rounds + 1)][1:]
            name = f"load to Parquet, {label(topic)}"
            metric = Metric("load", name, "k rows/s", Better.HIGHER, 2, None)
            self._add(metric, topic, seconds[KAFKA], seconds[OTTLA])
            name = f"the same, beside Parquet to Parquet, {label(topic)}"
            metric = Metric("floor", name, "k rows/s", Better.HIGHER, 0.75, None)
            self._add(metric, topic, again, seconds[OTTLA])

    def copies(self, wanted: list[Topic], small: str) -> None:
        """Measure streams from topic to topic: exactly once, at least once, and the connector's."""
        for topic in wanted:
            seconds = self._alternate(topic, self._bench.copy, AT_LEAST_ONCE)
            name = f"topic to topic exactly once, beside at least once, {label(topic)}"
            metric = Metric("copy", name, "k rows/s", Better.HIGHER, 0.85, 0.95)
            self._add(metric, topic, seconds[AT_LEAST_ONCE], seconds[OTTLA])
            name = f"the same, beside the connector's at least once, {label(topic)}"
            metric = Metric("copy", name, "k rows/s", Better.HIGHER, 1.5, 2)
            self._add(metric, topic, seconds[KAFKA], seconds[OTTLA])
        for _ in range(2):  # once to warm up
            without = self._bench.copy_batch(AT_LEAST_ONCE, small)
            ours = self._bench.copy_batch(OTTLA, small)
        name = "micro-batch into a topic exactly once, beside at least once"
        self.rows.append(Measured(Metric("copy", name, "ms", Better.LOWER), [without], [ours]))
        verdict = "reached" if ours - without < 100 else "missed"
        self.remarks.append(
            f"A micro-batch into a topic takes {ours - without:.0f} ms more exactly once than at"
            f" least once (to stay under 100 ms: {verdict})."
        )

    def memory(self, topic: Topic) -> None:
        """Measure a worker's memory after a tenth of a large topic, and after all of it."""
        console.print("memory of a worker ...")
        small = self._bench.worker_memory(topic, topic.written // 10)
        large = self._bench.worker_memory(topic, topic.written)
        size = topic.written * topic.value_bytes / 1e9
        name = f"peak memory of a worker, {size / 10:.1f} GB and {size:.0f} GB read"
        metric = Metric("memory", name, "MB", Better.LOWER, 1.1, None)
        self.rows.append(Measured(metric, [small], [large]))

    def stream(self, topic: str) -> None:
        """Measure a micro-batch, compared with one of an empty Python source."""
        console.print("micro-batches ...")
        for _ in range(2):  # once to warm up
            empty = self._bench.micro_batch("empty", topic)
            ours = self._bench.micro_batch(OTTLA, topic)
        metric = Metric("stream", "micro-batch, beside an empty Python source", "ms", Better.LOWER)
        self.rows.append(Measured(metric, [empty], [ours]))
        verdict = "reached" if ours - empty < 30 else "missed"
        self.remarks.append(
            f"A micro-batch takes {ours - empty:.0f} ms more than one of an empty Python source"
            f" (to stay under 30 ms: {verdict})."
        )

    def _alternate(
        self, topic: Topic, work: Callable[[str, Topic], float], *besides: str
    ) -> dict[str, list[float]]:
        """Return the seconds of each source in each round, after warm-up rounds."""
        console.print(f"{work.__name__} {topic.name} ...")
        sources = (*self._sources, *besides)
        seconds: dict[str, list[float]] = {KAFKA: [], OTTLA: [], **{name: [] for name in besides}}
        warm_up = WARM_UP_ROUNDS if self._rounds > 1 else 1
        for number in range(self._rounds + warm_up):
            for name in sources if number % 2 else sources[::-1]:
                taken = work(name, topic)
                if number >= warm_up:
                    seconds[name].append(taken)
        return seconds

    def _add(self, metric: Metric, topic: Topic, other: list[float], ours: list[float]) -> None:
        def rates(seconds: list[float]) -> list[float]:
            return [topic.written / taken / 1000 for taken in seconds]

        self.rows.append(Measured(metric, rates(other), rates(ours)))


def measure(options: argparse.Namespace, directory: Path) -> Run:
    """Start the broker and Spark, measure, and stop them."""
    try:
        jars = connector_jars()
    except BenchError as error:
        console.print(f"without Spark's own connector: {error}")
        jars = []
    broker = Ottla().new_broker(directory / "broker", {"log.retention.bytes": "-1"})
    broker.start()
    try:
        return _measure(options, directory, f"127.0.0.1:{broker.port}", jars)
    finally:
        broker.kill()


def _measure(options: argparse.Namespace, directory: Path, servers: str, jars: list[Path]) -> Run:
    wanted = topics(options.quick)
    big = Topic("big", 1000, "zstd", BIG_RECORDS // (10 if options.quick else 1))
    small = Topic("stream", 100, "none", 1000, partitions=1)
    works = options.only or WORKS
    plain = [topic for topic in wanted if topic.codec == "none"]
    used = [*_used(wanted, plain, works), small]
    for topic in used:
        filled(servers, topic)
    os.sync()  # or the disk is busy with it for minutes
    # Spark's planners and workers import the sources made here by name.
    here = str(Path(__file__).parent)
    os.environ["PYTHONPATH"] = os.pathsep.join([here, os.environ.get("PYTHONPATH", "")])
    conf = {"spark.jars": ",".join(map(str, jars)), "spark.ui.enabled": "false"}
    spark = session(f"local[{CORES}]", app_name="bench", conf=conf)
    try:
        spark.dataSource.register(EmptySource)
        spark.dataSource.register(ReadySource)
        rounds = options.rounds or (1 if options.quick else ROUNDS)
        run = Run(Bench(spark, servers, directory), rounds, with_connector=bool(jars))
        run.warm_up(small)
        all_works: dict[str, Callable[[], None]] = {
            "stream": lambda: run.stream(small.name),
            "read": lambda: run.reads(wanted),
            "load": lambda: run.loads(plain),
            "copy": lambda: run.copies(plain, small.name),
            # This topic is filled last, as nothing can be measured during so many writes to disk.
            "memory": lambda: run.memory(filled(servers, big)),
        }
        for name, work in all_works.items():
            if name in works:
                work()
        return run
    finally:
        spark.stop()


def _used(wanted: list[Topic], plain: list[Topic], works: Sequence[str]) -> list[Topic]:
    """Return the topics that the chosen works read."""
    if "read" in works:
        return wanted
    return plain if {"load", "copy"} & set(works) else []


def end_run(number: int, frame: FrameType | None) -> None:
    """End the run on a signal as on Ctrl-C: stop the broker and remove the data."""
    raise KeyboardInterrupt


def main() -> int:
    """Run the benchmark and return the exit code."""
    options = arguments()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, end_run)
    if options.markdown is not None:
        halves_around_table(options.markdown, BEGIN, END)
    busy = others_at_work()
    directory = Path(tempfile.mkdtemp(prefix="ottla-bench-spark-"))
    try:
        run = measure(options, directory)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    console.print(setting())
    print_table(console, run.rows)
    remarks = [*busy, *run.remarks]
    for remark in remarks:
        console.print(f"- {remark}", markup=False, highlight=False)
    if options.markdown is not None:
        write_markdown(options.markdown, markdown(run.rows, remarks), BEGIN, END)
    return 0


if __name__ == "__main__":
    sys.exit(main())
