"""`check` and `plan` report every kind of mistake with its line, before a start."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING, Protocol

import pytest

from ottla.cli.main import main
from ottla_spark.pipelines.api import check_file
from ottla_spark.pipelines.spec.problems import Problem

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOP = """\
sources:
  orders:
    topic: check-orders
    format: json
    schema: id long, amount double, ts timestamp
    watermark: {column: ts, delay: 10 minutes}
  loose: {topic: check-orders, format: json, schema: "id long, at timestamp"}
  still: {files: still, format: json, schema: "id long, name string"}
"""
SINK = "sinks:\n  out: {from: s, topic: check-orders}\n"
STEP_LINE = 10
SINK_LINE = 12


class MakeTopic(Protocol):
    def __call__(self, partitions: int = 1, *, name: str | None = None) -> str: ...


Check = Callable[[str], list[Problem]]


@pytest.fixture
def check(spark: SparkSession, bootstrap_servers: str, topic: MakeTopic, tmp_path: Path) -> Check:
    """Return a function that checks a text as a file, beside files that are there."""
    (tmp_path / "still").mkdir()
    (tmp_path / "taken").write_text("")
    from confluent_kafka import KafkaException

    try:
        topic(2, name="check-orders")
    except KafkaException:
        pass  # an earlier test made it

    def run(text: str) -> list[Problem]:
        file = tmp_path / "p.yaml"
        file.write_text(dedent(text))
        _, problems = check_file(file, lambda: spark, bootstrap_servers=bootstrap_servers)
        return list(problems)

    return run


@pytest.mark.parametrize(
    ("step", "words"),
    [
        ("{sql: SELECT amout FROM orders}", "no column 'amout'; did you mean 'amount'?"),
        ("{sql: SELECT * FROM ordes}", "'ordes'; did you mean 'orders'?"),
        ("{sql: SELECT * FORM orders}", "Syntax error at or near"),
        ("{sql: SELECT nope(id) FROM orders}", "`nope`"),
        ("{sql: WITH q AS (SELECT 1) INSERT INTO t SELECT * FROM q}", "should be a query"),
        ("{sql: 'SELECT id, count(*) n FROM orders GROUP BY id'}", "unbounded state"),
        ("{sql: SELECT DISTINCT id FROM orders}", "unbounded state: this DISTINCT"),
        ("{sql: SELECT o.id FROM orders o JOIN loose l ON o.id = l.id}", "either side"),
        (
            "{sql: SELECT o.id FROM orders o JOIN loose l ON o.id = l.id AND l.at > o.ts}",
            "unbounded state: this join never drops the rows of",
        ),
        ("{dedup: id, from: loose}", "unbounded state: this dedup"),
        ("{dedup: idd, from: orders}", "'idd'"),
        ("{python: 'gone.py:f', from: orders}", "gone.py does not exist"),
        ("{python: 'operator:neg', from: orders}", "operator:neg fails: TypeError"),
        ("{python: 'builtins:repr', from: orders}", "returned str, not a DataFrame"),
        (
            "{sql: 'SELECT id FROM orders', watermark: {column: ts, delay: 1m}}",
            "no column 'ts'",
        ),
        (
            "{sql: 'SELECT id FROM orders', watermark: {column: id, delay: 1m}}",
            "The event time `id` has the invalid type",
        ),
    ],
)
def test_mistakes_of_a_step(check: Check, step: str, words: str) -> None:
    (problem,) = check(f"{TOP}steps:\n  s: {step}\n{SINK}")
    assert problem.line == STEP_LINE
    assert problem.where.startswith("steps.s")
    assert words in problem.message


def test_a_mistake_inside_sql_has_its_own_line(check: Check) -> None:
    sql = "SELECT\n  id,\n  CASE WHEN amount > 1\n    THEN amout END x\nFROM orders\n"
    block = "".join(f"      {line}\n" for line in sql.splitlines())
    (problem,) = check(f"{TOP}steps:\n  s:\n    sql: |\n{block}{SINK}")
    assert (problem.line, problem.where) == (STEP_LINE + 5, "steps.s.sql")


@pytest.mark.parametrize(
    ("sink", "line", "where", "words"),
    [
        ("{from: s, topic: nowhere}", 0, ".topic", "there is no topic 'nowhere'"),
        ("{from: s, topic: check-orders, key: idd}", 0, ".key", "no column 'idd'"),
        ("{from: s, topic: check-orders, format: raw}", 0, ".from", "a column named value"),
        ("{from: s, topic: check-orders, mode: complete}", 0, ".mode", "possible modes: append"),
        ("{from: s, table: 'parquet:taken/x'}", 0, ".table", "is a file, not a directory"),
        ("{from: s, table: 'parquet:x', partition_by: dya}", 0, ".partition_by", "'day'"),
        ("{from: s, table: 'parquet:x', partition_by: [id, day]}", 0, ".partition_by", "no column"),
        ("{from: still, topic: check-orders}", 0, ".from", "'still' is not a stream"),
        ("\n    from: s\n    mode: complete\n    topic: check-orders", 2, ".mode", "complete"),
    ],
)
def test_mistakes_of_a_sink(check: Check, sink: str, line: int, where: str, words: str) -> None:
    step = "{sql: 'SELECT id, date(ts) day FROM orders'}"
    found = check(f"{TOP}steps:\n  s: {step}\nsinks:\n  out: {sink}\n")
    assert [(problem.line, problem.where) for problem in found] == [
        (SINK_LINE + line, f"sinks.out{where}")
    ]
    assert words in found[0].message


@pytest.mark.parametrize(
    ("sql", "mode", "possible"),
    [
        ("SELECT count(*) n FROM orders", "append", "update and complete"),
        (
            "SELECT session_window(ts, '1 m') w FROM orders GROUP BY 1",
            "update",
            "append and complete",
        ),
        ("SELECT * FROM orders ORDER BY id", "append", ""),
    ],
)
def test_impossible_output_modes(check: Check, sql: str, mode: str, possible: str) -> None:
    sink = f"{{from: s, topic: check-orders, mode: {mode}}}"
    (problem,) = check(f'{TOP}steps:\n  s: {{sql: "{sql}"}}\nsinks:\n  out: {sink}\n')
    assert (problem.line, problem.where) == (SINK_LINE, "sinks.out.mode")
    assert problem.message.endswith(f"possible modes: {possible}" if possible else "mode")


@pytest.mark.parametrize(
    "step",
    [
        "{sql: 'SELECT id, count(*) n FROM orders GROUP BY id', unbounded: true}",
        "{sql: 'SELECT count(*) n FROM orders'}",
        "{sql: \"SELECT window(ts, '1 minute') w, count(*) n FROM orders GROUP BY 1\"}",
    ],
)
def test_state_that_is_bounded_or_allowed(check: Check, step: str) -> None:
    sink = "{from: s, topic: check-orders, mode: update}"
    assert check(f"{TOP}steps:\n  s: {step}\nsinks:\n  out: {sink}\n") == []


def test_a_join_on_a_range_of_times_and_a_dedup_under_a_watermark_are_fine(check: Check) -> None:
    text = f"""{TOP}steps:
  timed: {{sql: SELECT * FROM loose, watermark: {{column: at, delay: 1m}}}}
  s:
    sql: |
      SELECT o.id, ts FROM orders o JOIN timed t
      ON o.id = t.id AND t.at BETWEEN o.ts AND o.ts + INTERVAL 5 MINUTES
  u: {{dedup: id, from: s}}
  named: {{sql: "SELECT u.id, name FROM u JOIN still USING (id)"}}
sinks:
  out: {{from: named, topic: check-orders}}
"""
    assert check(text) == []


def test_mistakes_of_sources(check: Check) -> None:
    found = check("""\
        sources:
          a: {topic: check-ordrs}
          b: {topic: check-orders, format: json, schema: id lon g}
          c: {topic: check-orders, watermark: {column: time, delay: 1m}}
          d: {files: gone}
          e: {table: "parquet:gone"}
          f: {pattern: "nothing-.*"}
          g: {topic: check-orders, watermark: {column: key, delay: 1m}}
          h: {topic: check-orders, options: {maxOffsetPerTriger: 5}}
          i:
            topic: check-orders
            options:
              failOnDataLoss: false
              minPartitions: none
        sinks:
          out: {from: a, topic: check-orders}
        """)
    assert [(problem.line, problem.where) for problem in found] == [
        (2, "sources.a.topic"),
        (3, "sources.b.schema"),
        (4, "sources.c.watermark.column"),
        (5, "sources.d.files"),
        (6, "sources.e.table"),
        (7, "sources.f.pattern"),
        (8, "sources.g.watermark.column"),
        (9, "sources.h.options.maxOffsetPerTriger"),
        (14, "sources.i.options.minPartitions"),
    ]
    assert "did you mean 'check-orders'?" in found[0].message


def test_duplicate_columns(check: Check) -> None:
    step = "{sql: 'SELECT *, id FROM orders'}"
    (problem,) = check(f"{TOP}steps:\n  s: {step}\n{SINK}")
    assert problem.where == "sinks.out.from"
    assert "more than one column id" in problem.message


def test_no_broker(spark: SparkSession, tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(
        "bootstrap_servers: 127.0.0.1:1\n" + TOP + SINK.replace("from: s", "from: orders")
    )
    (tmp_path / "still").mkdir()
    _, problems = check_file(file, lambda: spark)
    (problem,) = problems
    assert (problem.line, problem.where) == (1, "bootstrap_servers")
    assert "no broker answers" in problem.message


PICTURED = f"""\
{TOP}steps:
  big: {{sql: SELECT * FROM orders WHERE amount > 100}}
  per_minute: {{sql: "SELECT window(ts, '1 minute') w, count(*) n FROM big GROUP BY 1"}}
sinks:
  out: {{from: per_minute, topic: new-topic, partitions: 3, key: w.start}}
  lake: {{from: big, table: "parquet:lake"}}
"""


def test_the_picture(
    check: Check,
    bootstrap_servers: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert check(PICTURED) == []
    file = str(tmp_path / "p.yaml")
    assert main(["pipeline", "plan", file, "-b", bootstrap_servers]) == 0
    assert capsys.readouterr().out == dedent("""\
        p: always, state in state/p

        sink out
          | topic new-topic (new, 3 partitions), json, key w.start, append, exactly once
          |   key: string
          |   value: string
          step per_minute
            | SELECT window(ts, '1 minute') w, count(*) n FROM big GROUP BY 1
            |   w: struct<start:timestamp,end:timestamp>
            |   n: bigint
            step big
              | SELECT * FROM orders WHERE amount > 100
              |   id: bigint
              |   amount: double
              |   ts: timestamp
              source orders
                | topic check-orders (2 partitions), json, watermark ts - 10 minutes
                |   id: bigint
                |   amount: double
                |   ts: timestamp

        sink lake
          | table parquet:lake, append, exactly once
          |   id: bigint
          |   amount: double
          |   ts: timestamp
          step big (see above)
        """)
    assert main(["pipeline", "plan", file, "-b", bootstrap_servers, "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["problems"] == []
    assert [sink["group"] for sink in plan["sinks"]] == ["p.out", "p.lake"]
    big = next(found for found in plan["relations"] if found["name"] == "big")
    assert big["columns"] == {"id": "bigint", "amount": "double", "ts": "timestamp"}
    assert (big["from"], big["streams"]) == (["orders"], True)


def test_the_commands_print_problems_and_exit_with_1(
    check: Check, bootstrap_servers: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    check(f"{TOP}steps:\n  s: {{sql: SELECT x FROM orders}}\n{SINK}")
    file = str(tmp_path / "p.yaml")
    expected = f"{file}:{STEP_LINE}: steps.s.sql: there is no column 'x'"
    for command in ("check", "plan", "run"):
        assert main(["pipeline", command, file, "-b", bootstrap_servers]) == 1
        assert capsys.readouterr().err.startswith(expected)
    assert main(["pipeline", "check", file, "-b", bootstrap_servers, "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert [problem["line"] for problem in report["problems"]] == [STEP_LINE]
    assert not (tmp_path / "state").exists()


def test_wrong_usage_exits_with_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = str(tmp_path / "p.yaml")
    assert main(["pipeline", "run", file, "--once", "--always"]) == 2
    assert main(["pipeline", "run", file, "--every", "soon"]) == 2
    assert "every 'soon' should look like" in capsys.readouterr().err


def test_an_unknown_catalog_of_a_sink(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path))
    file = tmp_path / "p.yaml"
    file.write_text(
        "catalogs:\n"
        f"  away: {{uri: 'sqlite:///{tmp_path}/none/c.db', warehouse: 'file://{tmp_path}'}}\n"
        f"  here: {{uri: 'sqlite:///{tmp_path}/c.db', warehouse: 'file://{tmp_path}'}}\n"
        "sources:\n  a: {files: ., format: text, stream: true}\nsinks:\n"
        '  x: {from: a, table: "iceberg:nowhere.b.c"}\n'
        '  y: {from: a, table: "iceberg:away.b.c"}\n'
        '  z: {from: a, table: "iceberg:here.b.c"}\n'
        '  s: {from: a, table: "parquet:s3://lake/x"}\n'
        '  t: {from: a, table: "parquet:s3a://lake/x"}\n'
    )
    early: list[str] = []
    _, problems = check_file(
        file, lambda: spark, before_spark=lambda some: early.extend(each.where for each in some)
    )
    assert early == [f"sinks.{name}.table" for name in "xys"]
    found = {problem.where: problem.message for problem in problems}
    assert "unknown Iceberg catalog nowhere" in found["sinks.x.table"]
    assert "`catalogs`" in found["sinks.x.table"]
    assert "away cannot be opened" in found["sinks.y.table"]
    assert "s3://" in found["sinks.s.table"]
    assert found["sinks.t.table"].startswith("Spark has no file system for s3a: paths")
    assert set(found) == {f"sinks.{name}.table" for name in "xyst"}
