"""Options of topics, checked with the data source."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

pytest.importorskip("pyspark", reason="needs ottla[spark]")

from ottla_spark.pipelines.check.option_check import check_options
from ottla_spark.pipelines.spec.pipeline_file import read_text
from ottla_spark.pipelines.spec.problems import Problems


def mistakes(text: str) -> list[tuple[int, str, str]]:
    problems = Problems()
    spec = read_text(dedent(text), Path("p.yaml"), problems)
    assert spec is not None
    check_options(spec, problems)
    return [(problem.line, problem.where, problem.message) for problem in problems]


def test_properties_of_some_clients_are_not_allowed_at_the_top() -> None:
    found = mistakes("""\
        kafka:
          security.protocol: PLAINTEXT
          fetch.max.bytes: 1000
          secrity.protocol: SSL
        sources:
          a: {topic: a}
        sinks:
          b: {from: a, topic: b, format: raw}
        """)
    assert [(line, where) for line, where, _ in found] == [
        (3, "kafka.fetch.max.bytes"),
        (4, "kafka.secrity.protocol"),
    ]
    assert "as `kafka.fetch.max.bytes`" in found[0][2]
    assert "did you mean 'security.protocol'?" in found[1][2]


def test_options_of_sources() -> None:
    found = mistakes("""\
        sources:
          a:
            topic: a
            options:
              maxOffsetsPerTrigger: 10
              minOffsetsPerTriger: 5
          b: {topic: b, options: {kafka.auto.offset.reset: earliest}}
          c: {topic: c, starting: yesterday}
          d: {topic: d, options: {failOnDataLoss: maybe}}
        sinks:
          out: {from: a, topic: b, format: raw}
        """)
    assert [(line, where) for line, where, _ in found] == [
        (6, "sources.a.options.minOffsetsPerTriger"),
        (7, "sources.b.options.kafka.auto.offset.reset"),
        (8, "sources.c"),
        (9, "sources.d.options.failOnDataLoss"),
    ]


def test_options_of_sinks() -> None:
    found = mistakes("""\
        sources:
          a: {topic: a}
        sinks:
          b: {from: a, topic: b, options: {acks: all}}
          c: {from: a, topic: c, options: {kafka.acks: some}}
          d: {from: a, topic: d, options: {kafka.compression.type: lz4}}
        """)
    assert [(line, where) for line, where, _ in found] == [
        (4, "sinks.b.options.acks"),
        (5, "sinks.c.options.kafka.acks"),
    ]
