"""Apache Kafka's own command-line tools against Ottla."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource

from ottla.testing import Cluster

Run = Callable[..., str]
TOPICS = "org.apache.kafka.tools.TopicCommand"
CONFIGS = "kafka.admin.ConfigCommand"


def test_topics_are_created_described_altered_and_deleted(
    cluster: Cluster, kafka_tool: Run
) -> None:
    at = ("--bootstrap-server", cluster.bootstrap_servers)
    kafka_tool(
        TOPICS,
        *at,
        "--create",
        "--topic",
        "t",
        "--partitions",
        "3",
        "--config",
        "retention.ms=1000",
    )
    described = kafka_tool(TOPICS, *at, "--describe", "--topic", "t")
    assert "PartitionCount: 3" in described
    assert "retention.ms=1000" in described
    kafka_tool(TOPICS, *at, "--alter", "--topic", "t", "--partitions", "5")
    assert "PartitionCount: 5" in kafka_tool(TOPICS, *at, "--describe", "--topic", "t")
    kafka_tool(TOPICS, *at, "--delete", "--topic", "t")
    assert "t" not in kafka_tool(TOPICS, *at, "--list").split()


def test_configs_are_changed_and_shown(cluster: Cluster, kafka_tool: Run) -> None:
    at = ("--bootstrap-server", cluster.bootstrap_servers)
    kafka_tool(TOPICS, *at, "--create", "--topic", "t", "--partitions", "1")
    entity = ("--entity-type", "topics", "--entity-name", "t")
    kafka_tool(CONFIGS, *at, *entity, "--alter", "--add-config", "segment.ms=70000")
    assert "segment.ms=70000" in kafka_tool(CONFIGS, *at, *entity, "--describe")
    kafka_tool(CONFIGS, *at, *entity, "--alter", "--delete-config", "segment.ms")
    assert "segment.ms" not in kafka_tool(CONFIGS, *at, *entity, "--describe")
    broker = ("--entity-type", "brokers", "--entity-name", "1")
    kafka_tool(CONFIGS, *at, *broker, "--alter", "--add-config", "log.retention.ms=123456789")
    assert "log.retention.ms=123456789" in kafka_tool(CONFIGS, *at, *broker, "--describe")
    group = ("--entity-type", "groups", "--entity-name", "readers")
    setting = "consumer.session.timeout.ms=50000"
    kafka_tool(CONFIGS, *at, *group, "--alter", "--add-config", setting)
    assert setting in kafka_tool(CONFIGS, *at, *group, "--describe")


OWN_SETTINGS = {
    "leader.imbalance.per.broker.percentage",  # Kafka had it until 3.9
    "remote.log.storage.url",  # Kafka has a class name instead: it comes without a store
    # Kafka passes these on to its metadata manager without describing them.
    "rlmm.config.remote.log.metadata.topic.num.partitions",
    "rlmm.config.remote.log.metadata.topic.replication.factor",
    "rlmm.config.remote.log.metadata.topic.retention.ms",
}


def test_a_broker_describes_few_settings_that_kafka_does_not_have(
    cluster: Cluster, kafka_tool: Run, tmp_path: Path
) -> None:
    from harness.systems import Kafka

    kafka = Kafka(None).new_broker(tmp_path / "kafka")
    kafka.start()
    try:
        theirs = broker_settings(f"127.0.0.1:{kafka.port}")
    finally:
        kafka.stop()
    assert broker_settings(cluster.bootstrap_servers) - theirs == OWN_SETTINGS


def broker_settings(bootstrap_servers: str) -> set[str]:
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    resource = ConfigResource(ConfigResource.Type.BROKER, "1")
    return set(admin.describe_configs([resource])[resource].result(30))


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_the_java_client_produces_and_consumes(
    cluster: Cluster, kafka_tool: Run, codec: str
) -> None:
    at = ("--bootstrap-server", cluster.bootstrap_servers)
    lines = [f"line {number}" for number in range(200)]
    kafka_tool(
        "org.apache.kafka.tools.ConsoleProducer",
        *at,
        *("--topic", "java", "--compression-codec", codec),
        text="\n".join(lines) + "\n",
    )
    out = kafka_tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *at,
        *("--topic", "java", "--partition", "0", "--offset", "earliest"),
        *("--max-messages", "200", "--timeout-ms", "20000"),
    )
    assert out.splitlines() == lines


def test_offsets_log_dirs_and_deleted_records(
    cluster: Cluster, kafka_tool: Run, tmp_path: Path
) -> None:
    at = ("--bootstrap-server", cluster.bootstrap_servers)
    kafka_tool(
        "org.apache.kafka.tools.ConsoleProducer",
        *at,
        "--topic",
        "t",
        text="\n".join("abcdef") + "\n",
    )
    offsets = "org.apache.kafka.tools.GetOffsetShell"
    assert "t:0:6" in kafka_tool(offsets, *at, "--topic", "t")
    plan = tmp_path / "delete.json"
    plan.write_text('{"partitions":[{"topic":"t","partition":0,"offset":4}],"version":1}')
    kafka_tool("org.apache.kafka.tools.DeleteRecordsCommand", *at, "--offset-json-file", str(plan))
    assert "t:0:4" in kafka_tool(offsets, *at, "--topic", "t", "--time", "-2")
    log_dirs = "org.apache.kafka.tools.LogDirsCommand"
    assert '"partition":"t-0"' in kafka_tool(log_dirs, *at, "--describe", "--topic-list", "t")
    # The answer for a compacted topic has tagged fields that Kafka's tool does not know.
    compacted = ["--create", "--topic", "c", "--config", "cleanup.policy=compact"]
    kafka_tool("org.apache.kafka.tools.TopicCommand", *at, *compacted)
    assert '"partition":"c-0"' in kafka_tool(log_dirs, *at, "--describe", "--topic-list", "c")


def test_the_java_perf_test_runs(cluster: Cluster, kafka_tool: Run) -> None:
    out = kafka_tool(
        "org.apache.kafka.tools.ProducerPerformance",
        *("--topic", "perf", "--num-records", "20000", "--record-size", "100"),
        *("--throughput", "-1", "--bootstrap-server", cluster.bootstrap_servers),
    )
    assert "20000 records sent" in out
