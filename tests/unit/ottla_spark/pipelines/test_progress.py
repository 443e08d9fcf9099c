"""The progress of a query, from Spark's reports."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

import pytest

pytest.importorskip("pyspark", reason="needs ottla[spark]")

from pyspark.sql.streaming.listener import StreamingQueryProgress

from ottla_spark.pipelines.run.progress import QueryProgress
from ottla_spark.pipelines.show.views import progress_json, summary_row
from ottla_spark.stream_metrics import source_metrics


def report(
    batch: int,
    rows: int,
    end: object = None,
    latest: object = None,
    durations: dict[str, int] | None = None,
) -> StreamingQueryProgress:
    source = {
        "description": "ottla",
        "startOffset": None,
        "endOffset": end,
        "latestOffset": latest,
        "numInputRows": rows,
        "inputRowsPerSecond": 1.0,
        "processedRowsPerSecond": 2.0,
    }
    text = {
        "id": "00000000-0000-0000-0000-000000000000",
        "runId": "00000000-0000-0000-0000-000000000000",
        "name": "orders.out",
        "timestamp": "2026-01-01T00:00:00.000Z",
        "batchId": batch,
        "batchDuration": 100,
        "durationMs": durations or {},
        "eventTime": {"watermark": "2026-01-01T00:00:00.000Z"},
        "stateOperators": [],
        "sources": [source],
        "sink": {"description": "out", "numOutputRows": rows},
        "numInputRows": rows,
        "inputRowsPerSecond": 1.0,
        "processedRowsPerSecond": 2.0,
    }
    return StreamingQueryProgress.fromJson(json.loads(json.dumps(text)))


@dataclass
class Reports:
    """Stands for a query: only what it reported is asked."""

    recentProgress: list[StreamingQueryProgress] = field(default_factory=list)

    @property
    def lastProgress(self) -> StreamingQueryProgress | None:
        return self.recentProgress[-1] if self.recentProgress else None


def test_every_batch_counts_once() -> None:
    query = Reports()
    progress = QueryProgress("out", query)  # type: ignore[arg-type]
    assert not progress.refresh()
    query.recentProgress.append(report(0, 10))
    assert progress.refresh()
    assert not progress.refresh()
    query.recentProgress += [report(1, 5), report(2, 6), report(3, 7)]
    assert progress.refresh()
    assert (progress.rows, progress.batches, progress.batch) == (28, 4, 3)
    query.recentProgress.append(report(3, 0))
    assert not progress.refresh()
    assert progress.rows == 28
    # Of these records, a filter or an aggregation makes fewer rows.
    assert progress_json(progress)["records_read"] == 28


def test_a_batch_that_has_not_run_does_not_count() -> None:
    idle, empty = {"latestOffset": 3}, {"addBatch": 7}
    query = Reports([report(0, 0, durations=idle)])
    progress = QueryProgress("out", query)  # type: ignore[arg-type]
    assert not progress.refresh()
    assert (progress.batches, progress.rows_per_second) == (0, None)
    assert summary_row(progress)[3] == "-"
    query.recentProgress += [report(0, 4), report(1, 0, durations=empty), report(2, 0)]
    assert progress.refresh()
    assert (progress.batch, progress.batches, progress.rows) == (1, 2, 4)
    query.recentProgress += [report(2, 0, durations=idle)]
    assert not progress.refresh()


@pytest.mark.parametrize(
    ("end", "latest", "lag"),
    [
        ('{"a": {"0": 5, "1": 7}}', '{"a": {"0": 8, "1": 7}, "b": {"0": 4}}', 3),
        ('{"a": {"0": 5}}', '{"a": {"0": 5}}', 0),
        ('{"logOffset": 3}', '{"logOffset": 3}', None),
        ("3", "4", None),
        (None, None, None),
        ("not json", "{}", None),
    ],
)
def test_lag_counts_records_that_the_query_has_not_read(
    end: str | None, latest: str | None, lag: int | None
) -> None:
    query = Reports([report(0, 1, end, latest)])
    progress = QueryProgress("out", query)  # type: ignore[arg-type]
    assert progress.refresh()
    assert progress.lag == lag


def test_metrics_have_the_names_of_sparks_kafka_source() -> None:
    behind = report(0, 1, '{"a": {"0": 5, "1": 7}}', '{"a": {"0": 8, "1": 7, "2": 9}}')
    assert source_metrics(behind) == [
        {
            "minOffsetsBehindLatest": "0",
            "maxOffsetsBehindLatest": "3",
            "avgOffsetsBehindLatest": "1.0",
        }
    ]
    assert source_metrics(report(0, 1, "3", "4")) == [{}]
    progress = QueryProgress("out", Reports([behind]))  # type: ignore[arg-type]
    assert progress.refresh()
    assert progress_json(progress)["source_metrics"] == source_metrics(behind)
