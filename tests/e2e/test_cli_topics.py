"""`ottla topics` on a terminal and in scripts, with a broker process."""

from __future__ import annotations

import json
import os
import pty
import shlex
import subprocess
from collections.abc import Callable, Iterator
from subprocess import CompletedProcess
from typing import Any, TypeAlias

import pytest

from tests.harness.process import COMMAND, BrokerProcess, run_ottla

Topics: TypeAlias = Callable[..., CompletedProcess[str]]


@pytest.fixture(scope="module")
def server() -> Iterator[BrokerProcess]:
    with BrokerProcess(None, settings={"num.partitions": "2"}) as broker:
        yield broker


@pytest.fixture
def topics(server: BrokerProcess) -> Topics:
    def run(*words: str) -> CompletedProcess[str]:
        return run_ottla("topics", *words, "--bootstrap-server", server.bootstrap_servers)

    return run


def described(topics: Topics, name: str) -> dict[str, Any]:
    done = topics("describe", name, "--json")
    assert done.returncode == 0, done.stderr
    topics_found: list[dict[str, Any]] = json.loads(done.stdout)
    (topic,) = topics_found
    return topic


def test_the_life_of_a_topic(topics: Topics) -> None:
    created = topics("create", "life", "--partitions", "3", "--config", "retention.ms=3600000")
    assert (created.returncode, created.stdout, created.stderr) == (0, "life: created\n", "")
    assert "life" in topics("list").stdout.splitlines()

    topic = described(topics, "life")
    assert topic["configs"] == {"retention.ms": "3600000"}
    assert len(topic["id"]) == 22
    assert [p["partition"] for p in topic["partitions"]] == [0, 1, 2]
    for partition in topic["partitions"]:
        assert partition["replicas"] == partition["isr"] == [partition["leader"]]
        assert (partition["earliest_offset"], partition["latest_offset"]) == (0, 0)

    altered = topics(
        *("alter", "life", "--partitions", "5"),
        *("--config", "segment.ms=60000", "--delete-config", "retention.ms"),
    )
    assert (altered.returncode, altered.stdout) == (0, "life: altered\n")
    topic = described(topics, "life")
    assert topic["configs"] == {"segment.ms": "60000"}
    assert len(topic["partitions"]) == 5

    deleted = topics("delete", "life")
    assert (deleted.returncode, deleted.stdout) == (0, "life: deleted\n")
    assert "life" not in topics("list").stdout.splitlines()


def test_the_brokers_defaults(topics: Topics) -> None:
    assert topics("create", "--topic", "plain").returncode == 0
    assert len(described(topics, "plain")["partitions"]) == 2


def test_each_of_several_topics_gets_its_answer(topics: Topics) -> None:
    assert topics("create", "several-1").returncode == 0
    done = topics("create", "several-1", "several-2", "--json")
    assert done.returncode == 1
    assert "several-1" in done.stderr
    assert "TOPIC_ALREADY_EXISTS" in done.stderr
    report = {entry["name"]: entry for entry in json.loads(done.stdout)}
    assert report["several-1"]["created"] is False
    assert "TOPIC_ALREADY_EXISTS" in report["several-1"]["error"]
    assert report["several-2"] == {
        "name": "several-2",
        "id": described(topics, "several-2")["id"],
        "created": True,
        "error": None,
    }


def test_what_is_there_or_not_may_be_fine(topics: Topics) -> None:
    for expected in ("maybe: created\n", "maybe: already exists\n"):
        done = topics("create", "maybe", "--if-not-exists")
        assert (done.returncode, done.stdout, done.stderr) == (0, expected, "")
    for expected in ("maybe: deleted\n", "maybe: does not exist\n"):
        done = topics("delete", "maybe", "--if-exists")
        assert (done.returncode, done.stdout, done.stderr) == (0, expected, "")
    done = topics("alter", "maybe", "--if-exists", "--partitions", "9")
    assert (done.returncode, done.stdout, done.stderr) == (0, "maybe: does not exist\n", "")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["create", "no spaces please"], "INVALID_TOPIC_EXCEPTION"),
        (["create", "mistake", "--config", "retention.msec=1"], "retention.ms"),
        (["create", "mistake", "--config", "retention.ms=soon"], "retention.ms"),
        (["create", "mistake", "--replication-factor", "3"], "INVALID_REPLICATION_FACTOR"),
        (["describe", "mistake"], "ottla topics list"),
        (["delete", "mistake"], "ottla topics list"),
        (["delete", "mistake"], "UNKNOWN_TOPIC_OR_PARTITION"),
        (["alter", "mistake", "--config", "retention.ms=1"], "UNKNOWN_TOPIC_OR_PARTITION"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_mistakes_end_with_1_and_a_line(topics: Topics, words: list[str], said: str) -> None:
    done = topics(*words)
    assert done.returncode == 1
    assert done.stdout == ""
    assert said in done.stderr
    assert len(done.stderr.splitlines()) <= 2
    assert "Traceback" not in done.stderr


def test_partitions_cannot_become_fewer(topics: Topics) -> None:
    topics("create", "shrink", "--partitions", "3")
    done = topics("alter", "shrink", "--partitions", "2")
    assert done.returncode == 1
    assert "INVALID_PARTITIONS" in done.stderr


@pytest.mark.parametrize(
    "wrong",
    [
        ("--partitions", "2", "--config", "retention.ms=9000"),
        ("--partitions", "4", "--config", "retention.ms=soon"),
    ],
)
def test_a_topic_is_altered_as_a_whole_or_not_at_all(
    topics: Topics, wrong: tuple[str, ...]
) -> None:
    name = f"whole-{wrong[1]}"
    topics("create", name, "--partitions", "3")
    done = topics("alter", name, *wrong, "--json")
    assert done.returncode == 1
    (report,) = json.loads(done.stdout)
    parts = ("altered", "configs_altered", "partitions_altered")
    assert [report[part] for part in parts] == [False] * 3
    (topic,) = json.loads(topics("describe", name, "--json").stdout)
    assert len(topic["partitions"]) == 3
    assert "retention.ms" not in json.dumps(topic)


def test_a_pipe_that_is_closed_early_ends_quietly(server: BrokerProcess, topics: Topics) -> None:
    topics("create", "long", "--partitions", "900")

    def first_line(words: str) -> str:
        command = f"set -o pipefail; {shlex.join(COMMAND)} {words} | head -1"
        done = subprocess.run(
            ["bash", "-c", command], capture_output=True, text=True, timeout=30, check=True
        )
        assert done.stderr == ""
        return done.stdout

    described = first_line(f"topics describe long -b {server.bootstrap_servers}")
    assert described.startswith("long  id ")
    assert first_line("--help").startswith("Usage: ottla")
    assert first_line("completion bash")


def test_a_pipe_gets_plain_columns(topics: Topics) -> None:
    topics("create", "columns", "--partitions", "1")
    lines = topics("describe", "columns").stdout.splitlines()
    assert lines[0].startswith("columns  id ")
    assert [line.split() for line in lines[1:]] == [
        ["partition", "leader", "epoch", "replicas", "isr", "earliest", "latest", "size"],
        ["0", "1", "0", "1", "1", "0", "0", "0", "B"],
    ]


def test_a_terminal_gets_a_table(server: BrokerProcess, topics: Topics) -> None:
    topics("create", "table", "--partitions", "1")
    ours, theirs = pty.openpty()
    command = [*COMMAND, "topics", "list", "-b", server.bootstrap_servers]
    with open(ours, "rb", buffering=0) as terminal:
        process = subprocess.Popen(command, stdout=theirs)
        os.close(theirs)
        shown = b""
        try:
            while chunk := terminal.read(65536):
                shown += chunk
        except OSError:
            pass  # how a pseudo-terminal ends
        assert process.wait(20) == 0
    assert "│ table" in shown.decode()
