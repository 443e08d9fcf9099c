"""How far the sources of a stream are behind, from Spark's report of a batch.

Spark's own Kafka source reports these figures in `progress.sources[].metrics`. A data source of
Python cannot (PySpark 4.3): Spark asks for metrics only streams that implement
ReportsSourceMetrics, and none of the classes around a Python stream do. But the report has the
offsets that were read and the latest ones, so the figures can be computed from it.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import SourceProgress, StreamingQueryProgress

Place = tuple[str, str]
"""A topic and a partition, as text."""


def source_metrics(progress: StreamingQueryProgress) -> list[dict[str, str]]:
    """Return the metrics of each source, with the names and the form of Spark's Kafka source.

    They are empty for sources that are not topics, and for a batch that Spark repeats after a
    stop, because it reports no end offsets for it.
    """
    return [_metrics(source) for source in progress.sources]


def source_lag(source: SourceProgress) -> int | None:
    """Return how many records of a source's topics were not read yet; None if unknown."""
    behind = _behind(source)
    return None if behind is None else sum(behind.values())


def _metrics(source: SourceProgress) -> dict[str, str]:
    behind = _behind(source)
    if not behind:
        return {}
    counts = behind.values()
    return {
        "minOffsetsBehindLatest": str(min(counts)),
        "maxOffsetsBehindLatest": str(max(counts)),
        "avgOffsetsBehindLatest": str(sum(counts) / len(counts)),
    }


def _behind(source: SourceProgress) -> dict[Place, int] | None:
    """Return how far each partition is behind; None if the report does not tell."""
    read, there = _offsets(source.endOffset), _offsets(source.latestOffset)
    if read is None or there is None:
        return None
    return {place: max(0, end - read.get(place, end)) for place, end in there.items()}


def _offsets(text: str | None) -> dict[Place, int] | None:
    """Return offsets by topic and partition; None if the text is not of a topic source."""
    try:
        topics = json.loads(text) if text else None
    except ValueError:
        return None
    if not isinstance(topics, dict):
        return None
    found: dict[Place, int] = {}
    for topic, partitions in topics.items():
        if not isinstance(partitions, dict):
            return None
        found |= {
            (topic, partition): offset
            for partition, offset in partitions.items()
            if isinstance(offset, int)
        }
    return found
