"""What a Spark task reads: pieces of topic partitions, small enough to travel to executors."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql.datasource import InputPartition


@dataclass(frozen=True)
class OffsetRange:
    """The offsets [start, end) of one topic partition; `topic_id` is ZERO_UUID where unknown."""

    topic: str
    topic_id: bytes
    partition: int
    start: int
    end: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} [{self.start}, {self.end})"


@dataclass(frozen=True)
class ReadTask(InputPartition):
    """Several ranges that one Spark task reads together: tasks are dear, ranges are not."""

    ranges: tuple[OffsetRange, ...]
