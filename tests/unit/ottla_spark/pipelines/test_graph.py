"""The graph of sources and steps."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

from ottla_spark.pipelines.spec.graph import Graph
from ottla_spark.pipelines.spec.pipeline_file import read_text
from ottla_spark.pipelines.spec.problems import Problems


def graph_of(steps: str) -> tuple[Graph, list[str]]:
    problems = Problems()
    text = "sources:\n  a: {topic: a}\n  t: {table: 'parquet:t'}\nsteps:\n"
    text += "".join(f"  {line}\n" for line in dedent(steps).strip().splitlines())
    spec = read_text(text + "sinks:\n  out: {from: a, topic: x}\n", Path("p.yaml"), problems)
    assert spec is not None
    return Graph(spec, problems), [problem.message for problem in problems]


def test_steps_come_after_their_inputs() -> None:
    graph, problems = graph_of("""
        last: {sql: SELECT * FROM Middle JOIN t USING (id)}
        middle: {dedup: id, from: first}
        first: {sql: SELECT * FROM a}
        """)
    assert problems == []
    assert graph.order("last") == ["a", "first", "middle", "t", "last"]
    assert graph.order("first", "t") == ["a", "first", "t"]
    assert graph.inputs("last") == ("middle", "t")


def test_a_stream_makes_everything_after_it_a_stream() -> None:
    graph, _ = graph_of("""
        still: {sql: SELECT * FROM t}
        both: {sql: SELECT * FROM still JOIN a USING (id)}
        """)
    assert [graph.streams(name) for name in ("a", "t", "still", "both")] == [
        True,
        False,
        False,
        True,
    ]


def test_each_cycle_is_reported_once() -> None:
    _, problems = graph_of("""
        x: {sql: SELECT * FROM y}
        y: {sql: SELECT * FROM z}
        z: {sql: SELECT * FROM x}
        own: {dedup: id, from: own}
        fine: {sql: SELECT * FROM x}
        """)
    assert problems == [
        "the steps form a cycle: x reads y reads z reads x",
        "the steps form a cycle: own reads own",
    ]


def test_a_long_chain_needs_no_deep_stack() -> None:
    steps = "s0: {sql: SELECT * FROM a}\n" + "\n".join(
        f"s{n}: {{sql: SELECT * FROM s{n - 1}}}" for n in range(1, 1200)
    )
    graph, problems = graph_of(steps)
    assert problems == []
    assert graph.order("s1199")[-1] == "s1199"
