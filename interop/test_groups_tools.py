"""Groups with kcat and with Apache Kafka's own tools: as clients of Ottla, and on its files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.testing import Cluster

Run = Callable[..., str]
GROUP_COMMAND = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
LINES = [f"line {number}" for number in range(100)]


@pytest.fixture
def consumed(cluster: Cluster, kcat: Run) -> Cluster:
    """A cluster on which the group `readers` of kcat has read everything."""
    broker = cluster.bootstrap_servers
    kcat("-P", "-b", broker, "-t", "lines", "-p", "0", text="\n".join(LINES))
    out = kcat(*balanced(broker), "-e", "lines")
    assert out.splitlines() == LINES
    return cluster


def balanced(broker: str) -> list[str]:
    """kcat as a member of the group `readers`."""
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
