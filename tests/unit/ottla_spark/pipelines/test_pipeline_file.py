"""Pipeline files: what is read, and every mistake with its line."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla_spark.pipelines.spec.graph import Graph
from ottla_spark.pipelines.spec.model import (
    Always,
    DedupStep,
    Every,
    FileSource,
    Once,
    PipelineSpec,
    PythonStep,
    SqlStep,
    TableSink,
    TopicSink,
    TopicSource,
    Trigger,
)
from ottla_spark.pipelines.spec.pipeline_file import read_file, read_text
from ottla_spark.pipelines.spec.problems import Problem, Problems

FILE = Path("/pipelines/orders.yaml")
GOOD = """\
name: orders
bootstrap_servers: broker:9092
state: s3a://bucket/state
trigger: every 5m
kafka: {security.protocol: SSL}
conf: {spark.sql.shuffle.partitions: 2}
sources:
  orders:
    topic: [orders, returns]
    format: json
    schema: id long, amount double, ts timestamp
    keep: timestamp
    watermark: {column: ts, delay: 10 minutes}
  people: {table: "delta:lake/people"}
  drops: {files: in, format: csv, schema: id long, stream: true, options: {header: true}}
steps:
  big: {sql: SELECT * FROM orders WHERE amount > 100}
  clean: {python: "fns.py:clean", from: [big, people], with: {factor: 2}}
  unique: {dedup: id, from: clean}
sinks:
  out: {from: unique, topic: big-orders, key: id, mode: update, partitions: 3}
  lake: {from: unique, table: "parquet:lake/orders", partition_by: [day]}
"""
MINIMAL = """\
sources:
  a: {topic: a}
sinks:
  b: {from: a, topic: b, format: raw}
"""


def read(text: str) -> tuple[PipelineSpec | None, list[Problem]]:
    problems = Problems()
    spec = read_text(dedent(text), FILE, problems)
    if spec is not None:
        Graph(spec, problems)
    return spec, list(problems)


def mistakes(text: str) -> list[tuple[int, str, str]]:
    return [(problem.line, problem.where, problem.message) for problem in read(text)[1]]


def test_a_good_file_is_understood() -> None:
    spec, problems = read(GOOD)
    assert problems == []
    assert spec is not None
    assert (spec.name, spec.bootstrap_servers, spec.trigger) == (
        "orders",
        "broker:9092",
        Every(300_000),
    )
    assert (spec.state_path, spec.checkpoint_of("out")) == (
        "s3a://bucket/state",
        "s3a://bucket/state/out",
    )
    assert spec.group_of("out") == "orders.out"
    orders, drops = spec.sources["orders"], spec.sources["drops"]
    assert isinstance(orders, TopicSource)
    assert [topic.text for topic in orders.topics] == ["orders", "returns"]
    assert orders.watermark is not None
    assert (orders.watermark.column.text, orders.watermark.delay_ms) == ("ts", 600_000)
    assert isinstance(drops, FileSource)
    assert (drops.streams, drops.options["header"].text) == (True, "true")
    assert isinstance(spec.steps["big"], SqlStep)
    clean = spec.steps["clean"]
    assert isinstance(clean, PythonStep)
    assert clean.arguments == {"factor": 2}
    assert isinstance(spec.steps["unique"], DedupStep)
    out, lake = spec.sinks["out"], spec.sinks["lake"]
    assert isinstance(out, TopicSink)
    assert (out.topic.text, out.partitions, out.mode) == ("big-orders", 3, "update")
    assert isinstance(lake, TableSink)
    assert lake.place.location == "/pipelines/lake/orders"


def test_missing_keys_have_defaults() -> None:
    spec, problems = read(MINIMAL)
    assert problems == []
    assert spec is not None
    assert spec.name == "orders"
    assert spec.bootstrap_servers == "127.0.0.1:9092"
    assert spec.state_path == "/pipelines/state/orders"
    assert spec.trigger == Always()


@pytest.mark.parametrize(
    ("text", "trigger"),
    [
        ("once", Once()),
        ("always", Always()),
        ("10s", Always(10_000)),
        ("every 1 hour", Every(3_600_000)),
    ],
)
def test_triggers(text: str, trigger: Trigger) -> None:
    spec, problems = read(f"trigger: {text}\n{MINIMAL}")
    assert problems == []
    assert spec is not None
    assert spec.trigger == trigger


SOURCE = "sources:\n  a: {topic: a}\n"
SINK = "sinks:\n  b: {from: a, topic: b}\n"


def found_in(text: str) -> tuple[int, str, str]:
    """Return the one problem of a file."""
    found = mistakes(text)
    assert len(found) == 1, found
    return found[0]


@pytest.mark.parametrize(
    ("text", "where", "words"),
    [
        ("sorces: 1", "sorces", "did you mean 'sources'?"),
        ("trigger: sometimes", "trigger", "once, always, every 5m"),
        ("trigger: every 0s", "trigger", "every 5m"),
        ("name: a/b", "name", "letters"),
        ("name: [a]", "name", "not a list"),
        ("kafka: 12", "kafka", "keys and values"),
        ("catalogs: here", "catalogs", "keys and values"),
        ("catalogs: {here: x}", "catalogs.here", "keys and values"),
    ],
)
def test_mistakes_at_the_top(text: str, where: str, words: str) -> None:
    line, place, message = found_in(f"{text}\n{SOURCE}{SINK}")
    assert (line, place) == (1, where)
    assert words in message


@pytest.mark.parametrize(
    ("text", "line", "where", "words"),
    [
        (SOURCE, 1, "sinks", "is missing"),
        (f"steps: {{}}\n{SOURCE}", 1, "sinks", "is missing"),
        (f"{SOURCE}sinks: []\n", 3, "sinks", "keys and values"),
        (f"{SOURCE}sinks: {{}}\n", 3, "sinks", "is missing"),
    ],
)
def test_a_pipeline_has_sources_and_sinks(text: str, line: int, where: str, words: str) -> None:
    found = found_in(text)
    assert found[:2] == (line, where)
    assert words in found[2]


@pytest.mark.parametrize(
    ("name", "body", "below", "words"),
    [
        ("1a", "{topic: x}", "", "not start with a digit"),
        ("x", "", "", "is empty"),
        ("x", "{topc: x}", "", "did you mean 'topic'?"),
        ("x", "{topic: x, table: y}", "", "keep one of them"),
        ("x", "{topic: x, fromat: y}", ".fromat", "'format'"),
        ("x", "{topic: x, format: jsn}", ".format", "'json'"),
        ("x", "{topic: x, format: json}", ".schema", "missing"),
        ("x", "{topic: x, schema: i int}", ".schema", "json"),
        ("x", "{topic: x, format: avro}", ".schema", "a file"),
        ("x", "{topic: x, format: protobuf}", ".schema", ".proto"),
        ("x", "{topic: x, format: avro, schema: a.avsc, message: M}", ".message", "protobuf"),
        ("x", "{topic: x, format: json, schema: i int, registry: u}", ".registry", "avro or"),
        (
            "x",
            "{topic: x, format: avro, schema: a.avsc, registry_login: u:p}",
            ".registry_login",
            "needs registry",
        ),
        ("x", "{topic: x, format: text, keep: [kye]}", ".keep", "'key'"),
        ("x", "{topic: x, keep: key}", ".keep", "is not needed"),
        ("x", "{topic: []}", ".topic", "a value or a list"),
        ("x", "{topic: x, watermark: {column: ts}}", ".watermark.delay", "missing"),
        ("x", "{topic: x, watermark: {column: ts, delay: 5}}", ".watermark.delay", "10 minutes"),
        ("x", "{topic: x, watermark: ts}", ".watermark", "keys and values"),
        ("x", "{table: lake}", ".table", "parquet:PATH"),
        ("x", "{table: 'iceberg:t'}", ".table", "CATALOG"),
        ("x", "{table: 'delta:'}", ".table", "names no table"),
        ("x", "{files: in, format: csv, stream: true}", ".schema", "missing"),
        ("x", "{files: in, stream: maybe}", ".stream", "true or false"),
        ("A", "{topic: x}", "", "same name as sources.a in line 2"),
    ],
)
def test_mistakes_of_sources(name: str, body: str, below: str, words: str) -> None:
    line, where, message = found_in(f"{SOURCE}  {name}: {body}\n{SINK}")
    assert (line, where) == (3, f"sources.{name}{below}")
    assert words in message


@pytest.mark.parametrize(
    ("name", "body", "below", "words"),
    [
        ("a", "{sql: SELECT 1}", "", "same name as sources.a"),
        ("s", "{sql: DROP TABLE x}", ".sql", "a query"),
        ("s", "{sql: SELECT 1, from: a}", ".from", "SQL names"),
        ("s", "{python: 'f.py:g'}", ".from", "missing"),
        ("s", "{python: f, from: a}", ".python", "file.py:function"),
        ("s", "{python: 'f:g', from: a, with: [1]}", ".with", "by name"),
        ("s", "{dedup: id, from: [a, a]}", ".from", "one source"),
        ("s", "{dedup: id, from: b}", ".from", "no source or step 'b'"),
        ("s", "{sqll: SELECT 1}", "", "did you mean 'sql'?"),
        ("s", "{sql: SELECT * FROM s}", "", "cycle: s reads s"),
        ("s", "{sql: SELECT x, y FROM a}", ".y FROM a", "in quotes"),
    ],
)
def test_mistakes_of_steps(name: str, body: str, below: str, words: str) -> None:
    line, where, message = found_in(f"{SOURCE}steps:\n  {name}: {body}\n{SINK}")
    assert (line, where) == (4, f"steps.{name}{below}")
    assert words in message


@pytest.mark.parametrize(
    ("name", "body", "below", "words"),
    [
        ("b", "{from: aa, topic: b}", ".from", "did you mean 'a'?"),
        ("b", "{from: [a, a], topic: b}", ".from", "UNION"),
        ("b", "{from: a}", "", "needs topic or table"),
        ("b", "{from: a, topic: b, mode: upsert}", ".mode", "append"),
        ("b", "{from: a, topic: b, partitions: 0}", ".partitions", "positive integer"),
        ("b", "{from: a, topic: b, format: raw, key: x}", ".key", "column named key"),
        ("b", "{from: a, table: 'parquet:x', mode: update}", ".mode", "append"),
        (
            "b",
            "{from: a, table: 'parquet:x', upsert: id}",
            ".upsert",
            "use delta: or iceberg:",
        ),
        ("b", "{from: a, table: 'delta:x', upsert: id, mode: complete}", ".mode", "update"),
        ("b", "{from: a, table: 'iceberg:x.y.z', upsert: [id, n]}", ".upsert", "one column"),
        ("../b", "{from: a, topic: b}", "", "letters"),
    ],
)
def test_mistakes_of_sinks(name: str, body: str, below: str, words: str) -> None:
    line, where, message = found_in(f"{SOURCE}sinks:\n  {name}: {body}\n")
    assert (line, where) == (4, f"sinks.{name}{below}")
    assert words in message


def test_all_mistakes_are_found_at_once() -> None:
    found = mistakes("""\
        nam: x
        sources:
          a: {topic: a, format: jsn}
        steps:
          s: {sqll: SELECT 1}
          t: {sql: SELECT * FROM u}
          u:
            sql: |
              SELECT * FROM t
        sinks:
          b:
            from: s
            topic: b
            extra: 1
          c: {from: ss, table: "parket:x"}
        """)
    assert [(line, where) for line, where, _ in found] == [
        (1, "nam"),
        (3, "sources.a.format"),
        (5, "steps.s"),
        (6, "steps.t"),
        (14, "sinks.b.extra"),
        (15, "sinks.c.from"),
        (15, "sinks.c.table"),
    ]
    assert found[3][2] == "the steps form a cycle: t reads u reads t"


def test_a_table_takes_one_sink() -> None:
    found = mistakes("""\
        sources:
          a: {topic: a}
        sinks:
          b: {from: a, table: "parquet:lake/x"}
          c: {from: a, table: "parquet:./lake/x"}
        """)
    assert found == [
        (5, "sinks.c.table", "sinks.b already writes this table; UNION the two in one step")
    ]


@pytest.mark.parametrize(
    ("content", "words"), [(None, "No such file"), (b"\xff\xfe\x00", "not UTF-8")]
)
def test_a_file_that_cannot_be_read(tmp_path: Path, content: bytes | None, words: str) -> None:
    file = tmp_path / "p.yaml"
    if content is not None:
        file.write_bytes(content)
    problems = Problems()
    assert read_file(file, problems) is None
    assert [words in problem.message for problem in problems] == [True]


WORDS = st.sampled_from(
    [
        *("sources", "steps", "sinks", "a", "b", "topic", "from", "sql", "table", "dedup"),
        *("python", "watermark", "column", "delay", "format", "SELECT * FROM a", "f.py:g", "1"),
    ]
)
TREES = st.recursive(
    st.none() | WORDS | st.integers() | st.booleans(),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(WORDS, below, max_size=5),
    max_leaves=25,
)


@settings(deadline=None, max_examples=60)
@given(st.dictionaries(WORDS, TREES, max_size=5))
def test_any_tree_is_read_or_reported(tree: dict[str, object]) -> None:
    import yaml

    text = yaml.safe_dump(tree)
    spec, problems = read(text)
    lines = text.count("\n") + 1
    assert all(0 <= problem.line <= lines and problem.message for problem in problems)
    assert spec is not None or problems


DEAD = """\
sources:
  a: {topic: a, format: json, schema: n long, keep: key, dead_letters: "%s"}
sinks:
  b: {from: a, topic: b}
"""


def test_dead_letters_add_a_source_and_a_sink() -> None:
    problems = Problems()
    spec = read_text(DEAD % "topic:bad", FILE, problems)
    assert spec is not None
    assert list(problems) == []
    added, sink = spec.sources["a_dead_letters"], spec.sinks["a_dead_letters"]
    assert isinstance(added, TopicSource)
    assert (added.has_misfits_only, added.keep) == (True, ())
    assert isinstance(sink, TopicSink)
    assert (sink.topic.text, sink.partitions, sink.input.text) == ("bad", 1, "a_dead_letters")
    source = spec.sources["a"]
    assert isinstance(source, TopicSource)
    assert source.bad_records == "drop"
    tables = read_text(DEAD % "parquet:bad", FILE, problems)
    assert tables is not None
    lake = tables.sinks["a_dead_letters"]
    assert isinstance(lake, TableSink)
    assert lake.place.location == "/pipelines/bad"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (DEAD % "nowhere", "or topic:NAME"),
        (DEAD.replace("keep: key", "bad_records: keep") % "topic:x", "is not needed"),
        (
            DEAD.replace("json, schema: n long, keep: key", "raw") % "topic:x",
            "needs",
        ),
        (DEAD.replace("b: {from", "a_dead_letters: {from") % "topic:x", "is taken"),
    ],
)
def test_mistakes_of_dead_letters(text: str, words: str) -> None:
    problems = Problems()
    read_text(text, FILE, problems)
    assert any(words in problem.message for problem in problems)
