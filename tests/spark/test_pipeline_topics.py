"""Pipelines over topics: windows, joins, dedup, several sinks, restarts."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from textwrap import dedent, indent
from typing import TYPE_CHECKING, Protocol

import fastavro
import pytest

import ottla_spark
from ottla.client.address import parse_addresses
from ottla.client.cluster import Client
from ottla.client.groups.offsets import fetch_offsets
from ottla_spark.pipelines.api import Pipeline
from ottla_spark.pipelines.run.failures import QueryFailed
from ottla_spark.pipelines.run.pipeline_run import View
from ottla_spark.pipelines.run.progress import QueryProgress
from ottla_spark.pipelines.spec.problems import PipelineError
from tests.harness.schema_registry import registry

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

START = datetime(2026, 1, 1, 12, tzinfo=UTC)


class MakeTopic(Protocol):
    def __call__(self, partitions: int = 1) -> str: ...


class Produce(Protocol):
    def __call__(
        self,
        topic: str,
        n: int,
        *,
        first: int = 0,
        value: Callable[[int], bytes | None],
    ) -> None: ...


class Make(Protocol):
    """`make("name", sources, steps, sinks)` writes a file and opens it."""

    def __call__(self, name: str, sources: str, steps: str, sinks: str) -> Pipeline: ...


@pytest.fixture
def make(spark: SparkSession, bootstrap_servers: str, tmp_path: Path) -> Make:
    def write(name: str, sources: str, steps: str, sinks: str) -> Pipeline:
        text = f"name: {name}\nbootstrap_servers: {bootstrap_servers}\n"
        for section, body in (("sources", sources), ("steps", steps), ("sinks", sinks)):
            text += f"{section}:\n{indent(dedent(body).strip(), '  ')}\n"
        file = tmp_path / f"{name}.yaml"
        file.write_text(text)
        return ottla_spark.pipeline(file, spark)

    return write


def event(number: int, seconds: float, **more: object) -> bytes:
    at = (START + timedelta(seconds=seconds)).isoformat()
    return json.dumps({"id": number, "at": at, **more}).encode()


def table(spark: SparkSession, path: Path) -> list[Row]:
    return sorted(spark.read.parquet(str(path)).collect())


EVENTS = """\
events:
  topic: {topic}
  format: json
  schema: id long, at timestamp
  watermark: {{column: at, delay: 1 minute}}
"""


def test_windows_close_when_the_watermark_has_passed_and_state_outlives_a_run(
    spark: SparkSession, make: Make, topic: MakeTopic, produce: Produce, tmp_path: Path
) -> None:
    name = topic(2)
    counts = make(
        "windows",
        EVENTS.format(topic=name),
        "counts: {sql: \"SELECT window(at, '1 minute') w, count(*) n FROM events GROUP BY 1\"}",
        'out: {from: counts, table: "parquet:out"}',
    )
    produce(name, 100, value=lambda n: event(n, n))
    (first,) = counts.run(once=True)
    assert first.rows == 100
    assert first.state_rows is not None
    assert first.state_rows > 0
    assert table(spark, tmp_path / "out") == []
    produce(name, 100, first=100, value=lambda n: event(n, n))
    produce(name, 1, first=200, value=lambda n: event(n, 3600))
    (second,) = counts.run(once=True)
    assert second.rows == 101
    rows = table(spark, tmp_path / "out")
    assert [(row.w.start.minute, row.n) for row in rows] == [(0, 60), (1, 60), (2, 60), (3, 20)]


def test_rows_joined_with_a_table(
    spark: SparkSession, make: Make, topic: MakeTopic, produce: Produce, tmp_path: Path
) -> None:
    name = topic()
    spark.createDataFrame([(0, "even"), (1, "odd")], "parity int, word string").write.parquet(
        str(tmp_path / "words")
    )
    produce(name, 10, value=lambda n: event(n, n))
    joined = make(
        "joined",
        EVENTS.format(topic=name) + '\nwords: {table: "parquet:words"}',
        "named: {sql: 'SELECT id, word FROM events JOIN words ON id % 2 = parity WHERE id > 2'}",
        'out: {from: named, table: "parquet:out", partition_by: word}',
    )
    joined.run(once=True)
    rows = spark.read.parquet(str(tmp_path / "out")).groupBy("word").count().collect()
    assert {row.word: row["count"] for row in rows} == {"even": 3, "odd": 4}
    assert (tmp_path / "out" / "word=odd").is_dir()


def test_two_streams_joined_on_a_range_of_times(
    spark: SparkSession, make: Make, topic: MakeTopic, produce: Produce, tmp_path: Path
) -> None:
    asked, answered = topic(), topic()
    produce(asked, 20, value=lambda n: event(n, n))
    produce(answered, 20, value=lambda n: event(n, n + (30 if n % 4 else 600)))
    paired = make(
        "paired",
        EVENTS.format(topic=asked) + EVENTS.format(topic=answered).replace("events", "answers"),
        """\
        pairs:
          sql: |
            SELECT e.id, e.at asked, a.at answered
            FROM events e JOIN answers a
            ON e.id = a.id AND a.at BETWEEN e.at AND e.at + INTERVAL 1 MINUTE
        """,
        'out: {from: pairs, table: "parquet:out"}',
    )
    paired.run(once=True)
    rows = table(spark, tmp_path / "out")
    assert [row.id for row in rows] == [n for n in range(20) if n % 4]
    assert {row.answered - row.asked for row in rows} == {timedelta(seconds=30)}


def test_dedup_of_records_that_came_twice(
    spark: SparkSession, make: Make, topic: MakeTopic, produce: Produce, tmp_path: Path
) -> None:
    name = topic(2)
    unique = make(
        "unique",
        EVENTS.format(topic=name),
        "unique: {dedup: id, from: events}",
        'out: {from: unique, table: "parquet:out"}',
    )
    produce(name, 30, value=lambda n: event(n % 20, n % 20))
    unique.run(once=True)
    produce(name, 10, value=lambda n: event(n + 15, n + 15))
    unique.run(once=True)
    assert [row.id for row in table(spark, tmp_path / "out")] == list(range(25))


def test_every_sink_continues_after_a_stop_between_batches(
    spark: SparkSession,
    make: Make,
    topic: MakeTopic,
    produce: Produce,
    tmp_path: Path,
    bootstrap_servers: str,
) -> None:
    name = topic(2)
    produce(name, 120, value=lambda n: event(n, n))
    both = make(
        "both",
        EVENTS.format(topic=name) + "  options: {maxOffsetsPerTrigger: 10}",
        "even: {sql: SELECT id FROM events WHERE id % 2 = 0}\n"
        "odd: {sql: SELECT id FROM events WHERE id % 2 = 1}",
        'evens: {from: even, table: "parquet:even"}\nodds: {from: odd, table: "parquet:odd"}',
    )

    class StopsEarly(View):
        def __init__(self) -> None:
            self.stop = threading.Event()

        def batch(self, query: QueryProgress) -> None:
            self.stop.set()

    early = StopsEarly()
    stopped = both.run(once=True, view=early, stop=early.stop)
    assert any(query.rows < 120 for query in stopped)
    rest = both.run(once=True)
    # For a batch that it repeats Spark asks no topic for its end.
    repeated_only = [query for query in rest if query.batches == 1]
    assert all(query.lag == 0 for query in rest if query.batches and query not in repeated_only)
    assert all(query.lag in (0, None) for query in repeated_only)
    assert [row.id for row in table(spark, tmp_path / "even")] == list(range(0, 120, 2))
    assert [row.id for row in table(spark, tmp_path / "odd")] == list(range(1, 120, 2))
    with Client(parse_addresses(bootstrap_servers)) as client:
        for group in ("both.evens", "both.odds"):
            offsets = fetch_offsets(client, group)
            assert sum(found.offset for found in offsets.values()) == 120


def test_bad_records_fail_the_query_or_are_dropped_or_kept(
    spark: SparkSession, make: Make, topic: MakeTopic, produce: Produce, tmp_path: Path
) -> None:
    from ottla_spark.pipelines.run.failures import QueryFailed

    name = topic()
    values = [event(0, 0), b"not json", None, b'{"id": "x"}', event(4, 4), event(5, 5) + b" x"]
    produce(name, len(values), value=lambda n: values[n])

    def ids(bad_records: str) -> list[int | None]:
        source = EVENTS.format(topic=name) + f"  bad_records: {bad_records}\n  keep: offset"
        out = f'out: {{from: events, table: "parquet:{bad_records}"}}'
        make(bad_records, source, "unused: {sql: SELECT 1}", out).run(once=True)
        rows = spark.read.parquet(str(tmp_path / bad_records)).sort("_offset").collect()
        return [row.id for row in rows]

    assert ids("drop") == [0, 4]
    assert ids("keep") == [0, None, None, 4, None]
    with pytest.raises(QueryFailed, match=r"sinks.out: Malformed records .*bad_records: drop"):
        ids("fail")


def test_sums_per_minute_go_from_topic_to_topic(
    spark: SparkSession,
    make: Make,
    topic: MakeTopic,
    produce: Produce,
    bootstrap_servers: str,
) -> None:
    name = topic(2)
    out = f"{name}-sums"
    sums = make(
        "sums",
        EVENTS.format(topic=name),
        """\
        sums:
          sql: |
            SELECT window(at, '1 minute').start minute, count(*) n, sum(id) total
            FROM events GROUP BY window(at, '1 minute')
        """,
        f"out: {{from: sums, topic: {out}, key: minute(minute), mode: update, partitions: 2}}",
    )
    produce(name, 90, value=lambda n: event(n, n))
    sums.run(once=True)
    produce(name, 90, first=90, value=lambda n: event(n, n))
    sums.run(once=True)
    rows = ottla_spark.read(spark, out, bootstrap_servers).orderBy("timestamp", "offset").collect()
    last = {bytes(row.key): json.loads(row.value) for row in rows}
    assert len(rows) > len(last)
    assert {key: (value["n"], value["total"]) for key, value in last.items()} == {
        str(minute).encode(): (60, sum(range(minute * 60, minute * 60 + 60))) for minute in range(3)
    }


ORDER: dict[str, object] = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "note", "type": ["null", "string"]}],
}
NOTE = 'syntax = "proto3"; message Note { int64 id = 1; string text = 2; }'


def avro(value: dict[str, object]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(ORDER), value)
    return out.getvalue()


def test_avro_of_a_file_and_framed_protobuf(
    spark: SparkSession, make: Make, topic: MakeTopic, produce: Produce, tmp_path: Path
) -> None:
    orders, notes = topic(), topic()
    (tmp_path / "order.avsc").write_text(json.dumps(ORDER))
    (tmp_path / "note.proto").write_text(NOTE)
    with registry({3: {"schema": NOTE, "schemaType": "PROTOBUF"}}, login="dTpw") as url:
        both = make(
            "binary",
            f"""
            orders: {{topic: {orders}, format: avro, schema: order.avsc, bad_records: keep,
                     keep: [offset]}}
            notes: {{topic: {notes}, format: protobuf, schema: note.proto, registry: "{url}",
                    registry_login: "u:p", bad_records: drop}}
            """,
            """
            both:
              sql: |
                SELECT id, note AS words, _offset FROM orders
                UNION ALL SELECT id, text, -1 FROM notes
            """,
            'out: {from: both, table: "parquet:out"}',
        )
        bare = [avro({"id": 1, "note": "one"}), b"\xff", avro({"id": 2, "note": None})]
        produce(orders, 3, value=lambda n: bare[n])
        framed = [b"\0\0\0\0\3\0" + bytes([8, 7, 18, 1, 110]), b"not framed"]
        produce(notes, 2, value=lambda n: framed[n])
        both.run(once=True)
    rows = spark.read.parquet(str(tmp_path / "out")).collect()
    found = {(row.id, row.words, row._offset) for row in rows}
    assert found == {(1, "one", 0), (None, None, 1), (2, None, 2), (7, "n", -1)}


def test_a_value_that_fails_the_query_is_named(
    make: Make, topic: MakeTopic, produce: Produce, tmp_path: Path
) -> None:
    name = topic()
    (tmp_path / "order.avsc").write_text(json.dumps(ORDER))
    source = f"orders: {{topic: {name}, format: avro, schema: order.avsc}}"
    orders = make("strict", source, "{}", 'out: {from: orders, table: "parquet:out"}')
    produce(name, 2, value=lambda n: b"\x02" if n else avro({"id": n, "note": None}))
    said = f"sources.orders: topic {name} partition 0 offset 1: not Avro"
    with pytest.raises(QueryFailed, match=said):
        orders.run(once=True)


def test_a_bad_schema_file_is_reported_with_its_line(
    make: Make, topic: MakeTopic, tmp_path: Path
) -> None:
    (tmp_path / "order.avsc").write_text("{}")
    source = f"orders:\n  topic: {topic()}\n  format: avro\n  schema: order.avsc"
    with pytest.raises(PipelineError, match=r":7: sources.orders.schema: .*is not an Avro schema"):
        make("wrong", source, "{}", 'out: {from: orders, table: "parquet:out"}')


def test_records_that_do_not_fit_go_to_the_dead_letters(
    spark: SparkSession, make: Make, topic: MakeTopic, produce: Produce, tmp_path: Path
) -> None:
    name, bad = topic(), topic()
    produce(name, 2, value=lambda n: b'{"n": %d}' % n)
    produce(name, 1, value=lambda n: b'{"n": "x"}')
    sink = 'out: {from: a, table: "parquet:out"}'
    text = "a: {{topic: {}, format: json, schema: n long, dead_letters: '{}'}}"
    lake = make("lake", text.format(name, "parquet:bad"), "", sink)
    lake.run(once=True)
    assert [row.n for row in table(spark, tmp_path / "out")] == [0, 1]
    (letter,) = table(spark, tmp_path / "bad")
    assert (letter.topic, letter.partition, letter.offset) == (name, 0, 2)
    assert bytes(letter.value) == b'{"n": "x"}'
    assert "n" in letter.reason
    sent = make("sent", text.format(name, f"topic:{bad}"), "", sink)
    sent.start("a_dead_letters", once=True).awaitTermination()
    servers = sent.spec.bootstrap_servers
    (record,) = ottla_spark.read(spark, bad, servers, includeHeaders="true").collect()
    headers = {header.key: bytes(header.value).decode() for header in record.headers}
    assert bytes(record.value) == b'{"n": "x"}'
    assert (headers["ottla.topic"], headers["ottla.offset"]) == (name, "2")
