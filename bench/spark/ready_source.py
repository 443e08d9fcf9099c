"""A Python source that returns prepared batches again and again: the upper limit of any source.

It does not fetch, check or decode, so a read takes only the time of Spark and of the transfer from
Python to Java. Any source also needs the time of the codec for the same records.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import lru_cache

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from ottla.records.batch import HEADER_SIZE
from ottla.records.compression import CODECS
from pyspark_ottla.decode.column_arrays import BATCH_BYTES, BATCH_ROWS, arrow_schema
from pyspark_ottla.decode.decompression import Scratch
from pyspark_ottla.schema import columns
from pyspark_ottla.schema import schema as spark_schema
from pyspark_ottla.worker_gc import freeze_modules
from spark.fill import TIMESTAMP_MS, Topic, made_batches

NAME = "ready"
COLUMNS = columns({})
CODEC_ROUNDS = 200


@lru_cache(maxsize=1)
def ready_batch(value_bytes: int) -> pa.RecordBatch:
    """Return a batch with as many rows as the batches of the source `ottla`."""
    rows = min(BATCH_ROWS, BATCH_BYTES // value_bytes)
    fields = arrow_schema(COLUMNS)
    constants = (b"key-00000", b"x" * value_bytes, NAME, 0, 0, TIMESTAMP_MS * 1000, 0)
    arrays = [
        pa.repeat(pa.scalar(constant, kind), rows)
        for constant, kind in zip(constants, fields.types, strict=True)
    ]
    return pa.record_batch(arrays, schema=fields)


class ReadyReader(DataSourceReader):
    """Returns a number of rows in each task."""

    def __init__(self, options: dict[str, str]) -> None:
        self._tasks = int(options["tasks"])
        self._rows = int(options["rows"]) // self._tasks
        self._value_bytes = int(options["valueBytes"])

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(number) for number in range(self._tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        batch = ready_batch(self._value_bytes)
        for _ in range(self._rows // batch.num_rows):
            yield batch
        yield batch.slice(0, self._rows % batch.num_rows)
        freeze_modules(NAME)


class ReadySource(DataSource):
    """`format("ready")` with `rows`, `valueBytes` and `tasks`."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        return spark_schema(COLUMNS)

    def reader(self, schema: StructType) -> ReadyReader:
        return ReadyReader({name: self.options[name] for name in ("tasks", "rows", "valueBytes")})


def decompression_s(topic: Topic) -> float:
    """Return the CPU seconds to decompress the topic's records with the decoder of `ottla`."""
    codec = CODECS[topic.codec]
    if not codec:
        return 0.0
    payloads = [memoryview(batch)[HEADER_SIZE:] for batch in made_batches(topic)]
    scratch = Scratch()
    best = float("inf")
    for _ in range(CODEC_ROUNDS):
        began = time.process_time()
        for payload in payloads:
            scratch.clear()
            scratch.add(codec, payload)
        best = min(best, time.process_time() - began)
    return best / len(payloads) * topic.batches * topic.partitions
