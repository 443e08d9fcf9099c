"""Topics that were recreated between runs of a pipeline, with a real broker."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.client.address import parse_addresses
from ottla.client.cluster import Client
from ottla.client.topics.topics import create_topics, delete_topics
from ottla.testing import Cluster
from ottla_spark.pipelines.run.failures import QueryFailed
from ottla_spark.pipelines.run.topic_ids import check_topic_ids
from ottla_spark.pipelines.spec.model import PipelineSpec
from ottla_spark.pipelines.spec.pipeline_file import read_file
from ottla_spark.pipelines.spec.problems import Problems

LOSES = "{failOnDataLoss: false}"


@pytest.fixture
def servers(start_cluster: Callable[..., Cluster]) -> str:
    return start_cluster(memory=True).bootstrap_servers


def create(servers: str, *topics: str) -> None:
    with Client(parse_addresses(servers)) as client:
        for outcome in create_topics(client, list(topics), partitions=1):
            assert outcome.error is None


def recreate(servers: str, topic: str) -> None:
    with Client(parse_addresses(servers)) as client:
        for outcome in delete_topics(client, [topic]):
            assert outcome.error is None
    create(servers, topic)


def pipeline(directory: Path, servers: str, source: str) -> PipelineSpec:
    file = directory / "p.yaml"
    sink = 'sinks: {lake: {from: orders, table: "parquet:lake"}}'
    file.write_text(f"bootstrap_servers: {servers}\nsources: {{orders: {source}}}\n{sink}\n")
    problems = Problems()
    spec = read_file(file, problems)
    assert spec is not None, list(problems)
    Path(spec.state_path).mkdir(parents=True, exist_ok=True)
    return spec


def has_run(spec: PipelineSpec) -> None:
    offsets = Path(spec.checkpoint_of("lake")) / "offsets"
    offsets.mkdir(parents=True)
    (offsets / "0").touch()


@pytest.mark.parametrize("source", ["{topic: [other, orders]}", "{pattern: ord}"])
def test_a_recreated_topic_ends_the_run(tmp_path: Path, servers: str, source: str) -> None:
    create(servers, "orders", "other", "strange")
    spec = pipeline(tmp_path, servers, source)
    check_topic_ids(spec)
    has_run(spec)
    check_topic_ids(spec)
    recreate(servers, "strange")
    check_topic_ids(spec)
    recreate(servers, "orders")
    for _ in range(2):
        with pytest.raises(QueryFailed, match=r"sources\.orders: orders was deleted and created"):
            check_topic_ids(spec)
    loses = pipeline(tmp_path, servers, source.replace("}", f", options: {LOSES}}}"))
    check_topic_ids(loses)
    check_topic_ids(spec)


def test_before_the_first_batch_nothing_can_be_lost(tmp_path: Path, servers: str) -> None:
    create(servers, "orders")
    spec = pipeline(tmp_path, servers, "{topic: orders}")
    check_topic_ids(spec)
    recreate(servers, "orders")
    check_topic_ids(spec)
    has_run(spec)
    check_topic_ids(spec)


def test_an_unreadable_topics_file_is_reported(tmp_path: Path, servers: str) -> None:
    create(servers, "orders")
    spec = pipeline(tmp_path, servers, "{topic: orders}")
    (Path(spec.state_path) / "topics.json").write_text("[half")
    with pytest.raises(QueryFailed, match=r"topics\.json cannot be read"):
        check_topic_ids(spec)
