"""`ottla groups` against a broker with groups of real clients, Ottla's or Apache Kafka's."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.harness.classic import commit, committed
from tests.harness.deadline import eventually
from tests.harness.group import Group, partitions_of
from tests.harness.member.spec import Spec
from tests.harness.process import run_ottla
from tests.harness.raw import RawConnection, split_address

PARTITIONS = 4
RECORDS = 10

MakeTopic = Callable[[int], str]
Run = Callable[..., "Ran"]


class Ran:
    """What a command printed and how it ended."""

    def __init__(self, servers: str, *words: str) -> None:
        done = run_ottla("groups", *words, "--bootstrap-server", servers)
        self.code, self.out, self.err = done.returncode, done.stdout, done.stderr

    @property
    def json(self):  # type: ignore[no-untyped-def]
        assert self.code == 0, self.err
        return json.loads(self.out)

    @property
    def rows(self) -> list[list[str]]:
        """The lines of output, split at spaces."""
        return [line.split() for line in self.out.splitlines()]


@pytest.fixture
def run(group_servers: str) -> Run:
    return lambda *words: Ran(group_servers, *words)


@pytest.fixture
def topic(group_servers: str, make_group_topic: MakeTopic) -> str:
    """Return a topic with ten records in each of its four partitions."""
    name = make_group_topic(PARTITIONS)
    fill(group_servers, name)
    return name


@pytest.fixture
def idle(group_raw: RawConnection, group_id: str, topic: str) -> str:
    """Return a group without members that has committed half of each partition."""
    commit(group_raw, group_id, dict.fromkeys(partitions_of(topic, PARTITIONS), 5))
    return group_id


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_at_work(
    run: Run, group_servers: str, group_id: str, topic: str, protocol: str
) -> None:
    keys = partitions_of(topic, PARTITIONS)
    spec = Spec("confluent", group_servers, group_id, (topic,), protocol=protocol)
    with Group(spec) as group:
        first, second = group.gather(keys, 2)
        eventually(lambda: run("describe", group_id, "--json").json[0]["lag"] == 0, "no lag")
        (found,) = run("describe", group_id, "--json").json
        host, port = split_address(group_servers)
        assert (found["state"], found["type"]) == ("Stable", protocol)
        assert found["assignor"] == ("range" if protocol == "classic" else "uniform")
        assert (found["coordinator"]["host"], found["coordinator"]["port"]) == (host, port)
        readers = {(p["topic"], p["partition"]): p["client_id"] for p in found["partitions"]}
        assert readers == {
            **dict.fromkeys(first.owned, first.name),
            **dict.fromkeys(second.owned, second.name),
        }
        assert {p["committed_offset"] for p in found["partitions"]} == {RECORDS}
        (told,) = run("members", group_id, "--json").json
        owned = {
            member["client_id"]: {(p["topic"], p["partition"]) for p in member["assignment"]}
            for member in told["members"]
        }
        assert owned == {first.name: first.owned, second.name: second.owned}
        assert {tuple(member["subscribed_topics"]) for member in told["members"]} == {(topic,)}
        listed = {entry["group"]: entry for entry in run("list", "--json").json}
        assert (listed[group_id]["type"], listed[group_id]["state"]) == (protocol, "Stable")
        assert group_id in run("list", "--type", protocol, "--state", "Stable").out.split()
        assert group_id not in run("list", "--state", "Empty").out.split()
        refused = run("reset-offsets", group_id, "--all-topics", "--to-earliest", "--execute")
        assert refused.code == 1
        assert "is active (Stable, 2 members); stop its consumers first" in refused.err
        refused = run("delete", group_id)
        assert (refused.code, "stop its consumers first" in refused.err) == (1, True)
        refused = run("delete-offsets", group_id, "--topic", topic)
        assert (refused.code, "is subscribed to the topic" in refused.err) == (1, True)


def test_what_people_read(run: Run, idle: str, topic: str) -> None:
    shown = run("describe", idle)
    assert shown.rows[0][:2] == [idle, "Empty"]
    assert shown.rows[0][-2:] == ["lag", str(5 * PARTITIONS)]
    assert shown.rows[1][:5] == ["topic", "partition", "committed", "log", "end"]
    assert shown.rows[2] == [topic, "0", "5", "10", "5", "-", "-", "-"]
    assert run("members", idle).out.splitlines()[0].startswith(f"{idle}  Empty  type classic")
    assert run("list").out.split().count(idle) == 1


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--to-earliest"], 0),
        (["--to-latest"], RECORDS),
        (["--to-offset", "7"], 7),
        (["--to-offset", "700"], RECORDS),
        (["--shift-by", "-2"], 3),
        (["--shift-by", "2"], 7),
        (["--shift-by", "-50"], 0),
        (["--to-current"], 5),
        (["--by-duration", "1h"], 0),
        (["--by-duration", "99999d"], 0),
        (["--by-duration", "PT0S"], RECORDS),
        (["--to-datetime", "1960-01-01T00:00:00"], 0),
        (["--to-datetime", "2001-01-01T00:00:00"], 0),
        (["--to-datetime", "2199-01-01T00:00:00Z"], RECORDS),
    ],
)
def test_offsets_are_reset_only_when_told_to(
    run: Run,
    group_raw: RawConnection,
    idle: str,
    topic: str,
    options: list[str],
    expected: int,
) -> None:
    before = committed(group_raw, idle)
    tried = run("reset-offsets", idle, "--all-topics", *options)
    assert (tried.code, "add --execute to set them" in tried.err) == (0, True)
    assert [row[:4] for row in tried.rows[1:]] == [
        [topic, str(number), "5", row[3]] for number, row in enumerate(tried.rows[1:])
    ]
    assert {int(row[3].lstrip("*")) for row in tried.rows[1:]} == {expected}
    assert committed(group_raw, idle) == before
    done = run("reset-offsets", idle, "--all-topics", *options, "--execute", "--json").json
    assert done["executed"] is True
    assert {step["new_offset"] for step in done["partitions"]} == {expected}
    assert set(committed(group_raw, idle).values()) == {expected}


def test_a_moment_between_records(
    run: Run, group_servers: str, group_raw: RawConnection, idle: str, topic: str
) -> None:
    time.sleep(0.01)
    moment = int(time.time() * 1000)
    fill(group_servers, topic)
    run("reset-offsets", idle, "--topic", topic, "--to-datetime", str(moment), "--execute")
    assert set(committed(group_raw, idle).values()) == {RECORDS}


def test_some_partitions_and_new_groups(
    run: Run, group_raw: RawConnection, idle: str, topic: str
) -> None:
    done = run("reset-offsets", idle, "--topic", f"{topic}:1,3", "--to-offset", "1", "--execute")
    assert done.code == 0
    assert sorted(committed(group_raw, idle).values()) == [1, 1, 5, 5]
    fresh = f"{idle}-new"
    assert run("reset-offsets", fresh, "--topic", topic, "--to-latest", "--execute").code == 0
    assert set(committed(group_raw, fresh).values()) == {RECORDS}


def test_offsets_go_to_a_file_and_come_back(
    run: Run, group_raw: RawConnection, idle: str, topic: str, tmp_path: Path
) -> None:
    exported = run("reset-offsets", idle, "--all-topics", "--to-current", "--export")
    assert exported.out.splitlines() == [f"{topic},{number},5" for number in range(PARTITIONS)]
    file = tmp_path / "offsets.csv"
    file.write_text(f"{topic},0,1\n\n{topic}, 2 ,3\n", encoding="utf-8")
    assert run("reset-offsets", idle, "--from-file", str(file), "--execute").code == 0
    assert [committed(group_raw, idle)[topic, n] for n in range(PARTITIONS)] == [1, 5, 3, 5]
    file.write_text(exported.out, encoding="utf-8")
    assert run("reset-offsets", idle, "--from-file", str(file), "--execute").code == 0
    assert set(committed(group_raw, idle).values()) == {5}


def test_what_cannot_be_done_is_said(run: Run, idle: str, topic: str, tmp_path: Path) -> None:
    cases = [
        (["reset-offsets", idle, "--to-latest"], 2, "to choose the topics"),
        (["reset-offsets", idle, "--all-topics"], 2, "give one of --to-earliest"),
        (
            ["reset-offsets", idle, "--all-topics", "--to-latest", "--to-earliest"],
            2,
            "give only one of",
        ),
        (["reset-offsets", idle, "--topic", f"{topic}:x", "--to-latest"], 2, "topic:0,1,2"),
        (["reset-offsets", idle, "--topic", f"{topic}:99", "--to-latest"], 1, "no partition 99"),
        (["reset-offsets", idle, "--topic", "nowhere", "--to-latest"], 1, "no topic nowhere"),
        (["reset-offsets", f"{idle}-x", "--topic", topic, "--shift-by", "1"], 1, "nothing to"),
        (["reset-offsets", idle, "--all-topics", "--by-duration", "1y"], 2, "1d12h30m"),
        (["reset-offsets", idle, "--all-topics", "--to-datetime", "noon"], 2, "2026-01-31"),
        (["reset-offsets", idle, "--from-file", str(tmp_path / "none")], 1, "cannot read"),
        (["describe", f"{idle}-x"], 1, "there is no such group"),
        (["delete", f"{idle}-x"], 1, "there is no such group"),
        (["delete-offsets", f"{idle}-x", "--topic", f"{topic}:0"], 1, "there is no such group"),
        (["delete-offsets", idle], 2, "either --topic or --all-topics"),
    ]
    for words, code, text in cases:
        ran = run(*words)
        assert (ran.code, text in ran.err, ran.out) == (code, True, ""), (words, ran.err)
    bad = tmp_path / "bad.csv"
    bad.write_text(f"{topic},0,1\n{topic},zero,1\n", encoding="utf-8")
    ran = run("reset-offsets", idle, "--from-file", str(bad))
    assert (ran.code, "line 2" in ran.err) == (1, True)


def test_groups_and_offsets_are_deleted(
    run: Run, group_raw: RawConnection, idle: str, topic: str
) -> None:
    assert run("delete-offsets", idle, "--topic", f"{topic}:0,1").out.splitlines() == [
        f"{topic}-0: offset deleted",
        f"{topic}-1: offset deleted",
    ]
    assert sorted(committed(group_raw, idle)) == [(topic, 2), (topic, 3)]
    assert run("delete-offsets", idle, "--all-topics").code == 0
    assert committed(group_raw, idle) == {}
    commit(group_raw, idle, {(topic, 0): 1})
    mixed = run("delete", idle, f"{idle}-x", "--json")
    assert mixed.code == 1
    assert [entry["deleted"] for entry in json.loads(mixed.out)] == [True, False]
    fine = run("delete", idle, "--if-exists")
    assert (fine.code, fine.out) == (0, f"{idle}: does not exist\n")


def fill(servers: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": servers})
    for number in range(RECORDS * PARTITIONS):
        producer.produce(topic, b"%d" % number, partition=number % PARTITIONS)
    assert producer.flush(10) == 0
