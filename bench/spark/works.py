"""The workloads: reads, loads, copies, the memory of workers, the overhead of a micro-batch."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import psutil
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

import ottla_spark
from spark.fill import Topic
from spark.ready_source import NAME as READY

OTTLA, KAFKA = "ottla", "kafka"
AT_LEAST_ONCE = "ottla, at least once"
COPY_BATCHES = 6
MEMORY_EVERY_S = 0.1
STREAM_BATCHES = 40
STREAM_WARM_UP = 10
STREAM_TIMEOUT_S = 240
WRITE_EVERY_S = 0.02
ADMIN_TIMEOUT_S = 60


class Bench:
    """One Spark session and one broker."""

    def __init__(self, spark: SparkSession, servers: str, directory: Path) -> None:
        self.spark = spark
        self._servers = servers
        self._directory = directory
        self._checkpoint = directory / "checkpoint"

    def source(self, name: str, topic: str, **options: str) -> DataFrame:
        """Return the whole topic as a DataFrame of one of the two sources."""
        reader = self.spark.read.format(name).option("kafka.bootstrap.servers", self._servers)
        return reader.option("subscribe", topic).options(**options).load()

    def read(self, name: str, topic: Topic) -> float:
        """Return the seconds to read all records of the topic to the noop sink.

        The source `ready` returns as many rows without a topic.
        """
        if name != READY:
            return _timed(self.source(name, topic.name))
        asked = {"rows": topic.written, "valueBytes": topic.value_bytes, "tasks": topic.partitions}
        return _timed(self.spark.read.format(READY).options(**asked).load())

    def load(self, name: str, topic: Topic) -> float:
        """Return the seconds to load the topic into a new Parquet table, with a checkpoint."""
        target = self._directory / name
        for place in (target, self._checkpoint):
            shutil.rmtree(place, ignore_errors=True)
        began = time.monotonic()
        if name == OTTLA:
            ottla_spark.load(
                topic.name,
                f"parquet:{target}",
                bootstrap_servers=self._servers,
                checkpoint=str(self._checkpoint),
                spark=self.spark,
            )
        else:
            self._load_by_stream(name, topic, target)
        return time.monotonic() - began

    def _load_by_stream(self, name: str, topic: Topic, target: Path) -> None:
        reader = self.spark.readStream.format(name).option("subscribe", topic.name)
        reader = reader.option("kafka.bootstrap.servers", self._servers)
        writer = reader.option("startingOffsets", "earliest").load().writeStream.format("parquet")
        writer = writer.option("checkpointLocation", str(self._checkpoint))
        writer.trigger(availableNow=True).start(str(target)).awaitTermination()

    def copy(self, name: str, topic: Topic) -> float:
        """Return the seconds to stream the topic into a new topic, in several micro-batches.

        `ottla` does it exactly once, the connector at least once.
        """
        shutil.rmtree(self._checkpoint, ignore_errors=True)
        with self._new_topic(topic.partitions) as target:
            frame = self._records(name, topic.name, topic.written // COPY_BATCHES)
            began = time.monotonic()
            self._sink(name, frame, target).trigger(availableNow=True).start().awaitTermination()
            return time.monotonic() - began

    def copy_batch(self, name: str, topic: str) -> float:
        """Return the median milliseconds of a micro-batch with a few records into a topic."""
        shutil.rmtree(self._checkpoint, ignore_errors=True)
        with self._new_topic(1) as target, _records_keep_coming(self._servers, topic):
            query = self._sink(name, self._records(name, topic), target).start()
            try:
                return median(_durations(query))
            finally:
                query.stop()

    def _records(self, name: str, topic: str, a_batch: int | None = None) -> DataFrame:
        """Return keys and values of a topic as a stream: what there is now, or what comes."""
        reader = self.spark.readStream.format(KAFKA if name == KAFKA else OTTLA)
        reader = reader.option("kafka.bootstrap.servers", self._servers).option("subscribe", topic)
        if a_batch is not None:
            reader = reader.option("startingOffsets", "earliest")
            reader = reader.option("maxOffsetsPerTrigger", str(a_batch))
        return reader.load().select("key", "value")

    def _sink(self, name: str, frame: DataFrame, topic: str) -> DataStreamWriter:
        writer = frame.writeStream.format(KAFKA if name == KAFKA else OTTLA)
        if name == AT_LEAST_ONCE:
            writer = writer.option("deliveryGuarantee", "at-least-once")
        writer = writer.option("kafka.bootstrap.servers", self._servers).option("topic", topic)
        return writer.option("checkpointLocation", str(self._checkpoint))

    @contextmanager
    def _new_topic(self, partitions: int) -> Iterator[str]:
        """Create a topic, and delete it in the end."""
        admin = AdminClient({"bootstrap.servers": self._servers})
        name = f"copy-{time.time_ns()}"
        admin.create_topics([NewTopic(name, partitions, 1)])[name].result(ADMIN_TIMEOUT_S)
        try:
            yield name
        finally:
            admin.delete_topics([name])[name].result(ADMIN_TIMEOUT_S)

    def rewrite(self) -> float:
        """Return the seconds to rewrite the Parquet files of the last load as Parquet."""
        written = self.spark.read.parquet(str(self._directory / OTTLA))
        return self._write(written, "again")

    def rows(self, name: str, topic: Topic) -> int:
        """Return the number of rows of a source."""
        return self.source(name, topic.name).count()

    def _write(self, frame: DataFrame, name: str) -> float:
        target = self._directory / name
        shutil.rmtree(target, ignore_errors=True)
        began = time.monotonic()
        frame.write.parquet(str(target))
        return time.monotonic() - began

    def worker_memory(self, topic: Topic, records: int) -> float:
        """Return the peak MB of a Python worker while it reads this many records of the topic."""
        each = records // topic.partitions
        ends = ",".join(f'"{partition}":{each}' for partition in range(topic.partitions))
        frame = self.source(OTTLA, topic.name, endingOffsets=f'{{"{topic.name}":{{{ends}}}}}')
        with _peak_of_workers() as peak:
            _timed(frame)
        return peak[0]

    def micro_batch(self, name: str, topic: str) -> float:
        """Return the median milliseconds of a micro-batch with a few records to the noop sink."""
        if name == OTTLA:
            reader = self.spark.readStream.format(OTTLA).option("subscribe", topic)
            reader = reader.option("kafka.bootstrap.servers", self._servers)
            with _records_keep_coming(self._servers, topic):
                return self._stream(reader.load())
        return self._stream(self.spark.readStream.format(name).load())

    def _stream(self, frame: DataFrame) -> float:
        shutil.rmtree(self._checkpoint, ignore_errors=True)
        writer = frame.writeStream.format("noop")
        writer = writer.option("checkpointLocation", str(self._checkpoint))
        query = writer.start()
        try:
            return median(_durations(query))
        finally:
            query.stop()


def _timed(frame: DataFrame) -> float:
    began = time.monotonic()
    frame.write.format("noop").mode("overwrite").save()
    return time.monotonic() - began


def _durations(query: StreamingQuery) -> list[float]:
    """Return the durations of micro-batches with rows, after the first few."""
    deadline = time.monotonic() + STREAM_TIMEOUT_S
    found: dict[int, float] = {}
    while len(found) < STREAM_WARM_UP + STREAM_BATCHES:
        if time.monotonic() > deadline or not query.isActive:
            raise RuntimeError(f"only {len(found)} micro-batches: {query.exception()}")
        for progress in query.recentProgress:
            if progress.numInputRows:
                found[progress.batchId] = float(progress.durationMs["triggerExecution"])
        time.sleep(WRITE_EVERY_S)
    return [found[batch] for batch in sorted(found)][STREAM_WARM_UP:]


@contextmanager
def _records_keep_coming(servers: str, topic: str) -> Iterator[None]:
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 0})
    stopped = threading.Event()

    def write() -> None:
        while not stopped.wait(WRITE_EVERY_S):
            producer.produce(topic, b"x" * 100)
            producer.poll(0)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()
        producer.flush(10)


@contextmanager
def _peak_of_workers() -> Iterator[list[float]]:
    """Return the largest resident memory of any Python worker of Spark, in MB."""
    peak = [0.0]
    stopped = threading.Event()

    def watch() -> None:
        while not stopped.wait(MEMORY_EVERY_S):
            peak[0] = max([peak[0], *_worker_memory()])

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield peak
    finally:
        stopped.set()
        thread.join()


def _worker_memory() -> Iterator[float]:
    for process in psutil.Process().children(recursive=True):
        try:
            if any(word.endswith("spark.daemon") for word in process.cmdline()):
                yield process.memory_info().rss / 1e6
        except psutil.Error:
            continue
