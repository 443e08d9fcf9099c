"""The options with which a pipeline reads topics."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

pytest.importorskip("pyspark", reason="needs ottla[spark]")

from ottla_spark.pipelines.frames.topic_options import source_options
from ottla_spark.pipelines.spec.model import TopicSource
from ottla_spark.pipelines.spec.pipeline_file import read_text
from ottla_spark.pipelines.spec.problems import Problems
from pyspark_ottla.options.source_options import stream_options


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("", True),
        (", options: {kafka.isolation.level: read_uncommitted}", False),
        (", options: {Kafka.Isolation.Level: read_uncommitted}", False),
    ],
)
def test_only_committed_records_are_read_unless_the_source_says_otherwise(
    options: str, expected: bool
) -> None:
    text = f"""\
        sources:
          a: {{topic: a{options}}}
        sinks:
          b: {{from: a, topic: b, format: raw}}
        """
    spec = read_text(dedent(text), Path("p.yaml"), Problems())
    assert spec is not None
    source = spec.sources["a"]
    assert isinstance(source, TopicSource)
    found = stream_options(source_options(spec, source, "group"))
    assert found.source.kafka.read_committed is expected
