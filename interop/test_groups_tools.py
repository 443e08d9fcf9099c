"""Groups with kcat and with Apache Kafka's own tools: as clients of Ottla, and on its files."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.testing import Cluster

Run = Callable[..., str]
GROUP_COMMAND = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
LINES = [f"line {number}" for number in range(100)]


@pytest.fixture
def consumed(cluster: Cluster, kcat: Run) -> Cluster:
    """Return a cluster on which the group `readers` of kcat has read everything."""
    broker = cluster.bootstrap_servers
    kcat("-P", "-b", broker, "-t", "lines", "-p", "0", text="\n".join(LINES))
    out = kcat(*balanced(broker), "-e", "lines")
    assert out.splitlines() == LINES
    return cluster


def balanced(broker: str) -> list[str]:
    """Return the command of kcat as a member of the group `readers`."""
    fast = ["-X", "session.timeout.ms=6000", "-X", "heartbeat.interval.ms=500"]
    return ["-G", "readers", "-b", broker, *fast, "-X", "auto.offset.reset=earliest", "-q"]


def test_kcat_goes_on_where_its_group_was(consumed: Cluster, kcat: Run) -> None:
    broker = consumed.bootstrap_servers
    kcat("-P", "-b", broker, "-t", "lines", "-p", "0", text="one more")
    assert kcat(*balanced(broker), "-e", "lines").splitlines() == ["one more"]


def test_kafkas_group_command_sees_and_changes_groups(consumed: Cluster, kafka_tool: Run) -> None:
    def command(*words: str) -> str:
        where = ("--bootstrap-server", consumed.bootstrap_servers)
        return kafka_tool(GROUP_COMMAND, *where, *words)

    assert command("--list").split() == ["readers"]
    rows = [line.split() for line in command("--describe", "--group", "readers").splitlines()]
    assert ["readers", "lines", "0", "100", "100", "0"] in [row[:6] for row in rows]
    state = command("--describe", "--group", "readers", "--state")
    assert "Empty" in state
    reset = ("--reset-offsets", "--group", "readers", "--topic", "lines", "--to-offset", "40")
    assert "40" in command(*reset, "--execute")
    assert "40" in command("--describe", "--group", "readers")
    assert "successful" in command("--delete", "--group", "readers")
    assert command("--list").split() == []


def test_kafkas_dump_tool_reads_the_offsets_topic(
    consumed: Cluster, kafka_tool: Run, tmp_path: Path
) -> None:
    directories = sorted((tmp_path / "data").glob("__consumer_offsets-*"))
    assert len(directories) == 50
    (segment,) = [
        file for directory in directories for file in directory.glob("*.log") if file.stat().st_size
    ]
    out = kafka_tool(
        "org.apache.kafka.tools.DumpLogSegments", "--offsets-decoder", "--files", str(segment)
    )
    payloads = [line.split("key: ", 1)[1] for line in out.splitlines() if "key: " in line]
    keys = [json.JSONDecoder().raw_decode(payload)[0] for payload in payloads]
    assert {key["type"] for key in keys} == {"1", "2"}
    commits = [key["data"] for key in keys if key["type"] == "1"]
    assert commits[0] == {"group": "readers", "topic": "lines", "partition": 0}


def test_kafkas_dump_tool_reads_the_records_of_the_new_protocol(
    cluster: Cluster, kafka_tool: Run, tmp_path: Path
) -> None:
    """And `ottla dump-log` finds the same kinds of records."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    admin.create_topics([NewTopic("lines", 3, 1)])["lines"].result(30)
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "readers",
            "group.protocol": "consumer",
        }
    )
    consumer.subscribe(["^li.*"])
    deadline = time.monotonic() + 30
    while len(consumer.assignment()) < 3 and time.monotonic() < deadline:
        consumer.poll(0.2)
    consumer.commit(offsets=[TopicPartition("lines", 0, 7)], asynchronous=False)
    consumer.close()
    (segment,) = [
        file
        for file in (tmp_path / "data").glob("__consumer_offsets-*/*.log")
        if file.stat().st_size
    ]
    out = kafka_tool(
        "org.apache.kafka.tools.DumpLogSegments", "--offsets-decoder", "--files", str(segment)
    )
    payloads = [line.split("key: ", 1)[1] for line in out.splitlines() if "key: " in line]
    decoded = [json.JSONDecoder().raw_decode(payload) for payload in payloads]
    kinds = {key["type"] for key, _ in decoded}
    assert kinds == {"1", "3", "5", "6", "7", "8", "16"}
    for payload, (_, end) in zip(payloads, decoded, strict=True):
        assert payload[end:].partition("payload: ")[2].startswith(("{", "<DELETE>")), payload
    mine = dump_log("--offsets", "--json", str(segment))
    records = [row for row in map(json.loads, mine.splitlines()) if row["kind"] == "record"]
    assert len(records) == len(decoded)


def dump_log(*words: str) -> str:
    command = [sys.executable, "-m", "ottla.cli.main", "dump-log", *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
