"""`ottla tier` on a store, without brokers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ottla.cli.app import run
from ottla.cli.sizes import size_text, time_text
from ottla.server.object_stores.blocking_store import open_blocking_store
from ottla.tiered.manifest import Manifest
from tests.support.log import append_all, batch_of, new_log
from tests.support.tier import upload
from tests.unit.tier_reader.test_read_partition import CONFIG


@pytest.fixture
def tier(tmp_path: Path) -> str:
    return f"file:{tmp_path}/cold"


@pytest.fixture
def manifests(tier: str, monkeypatch: pytest.MonkeyPatch) -> list[Manifest]:
    monkeypatch.delenv("OTTLA_BOOTSTRAP_SERVERS", raising=False)
    log = new_log(CONFIG)
    for number in range(50):
        append_all(log, batch_of(2, value=b"%d" % number * 20))
    return upload(open_blocking_store(tier), log)


def test_describe(tier: str, manifests: list[Manifest], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["tier", "describe", "t", "--segments", "--tier", tier]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"t  id AQIDBAUGBwgJCgsMDQ4PEA  tier {tier}"
    total = size_text(sum(manifest.total_size for manifest in manifests))
    last = manifests[-1].end_offset
    assert lines[2].split() == ["0", str(len(manifests)), "0", "to", str(last), *total.split()]
    assert len(lines) == 4 + len(manifests)
    assert run(["tier", "describe", "t", "--json", "--tier", tier]) == 0
    found = json.loads(capsys.readouterr().out)
    (partition,) = found["partitions"]
    assert partition["local"] is None
    assert [s["start_offset"] for s in partition["remote"]["segments"]] == [
        manifest.start_offset for manifest in manifests
    ]


@pytest.mark.parametrize("command", ["check", "verify"])
def test_a_whole_tier(
    tier: str, manifests: list[Manifest], capsys: pytest.CaptureFixture[str], command: str
) -> None:
    assert run(["tier", command, "t", "--tier", tier]) == 0
    printed = capsys.readouterr()
    assert printed.out.splitlines()[-1].endswith("ok")
    assert printed.err == ""


def damaged(tier: str, command: str, capsys: pytest.CaptureFixture[str]) -> Any:
    assert run(["tier", command, "t", "--json", "--tier", tier]) == 1
    printed = capsys.readouterr()
    assert f"ottla: t has 1 problem in {tier}" in printed.err
    (partition,) = json.loads(printed.out)["partitions"]
    return partition


def test_problems(tier: str, manifests: list[Manifest], capsys: pytest.CaptureFixture[str]) -> None:
    store = open_blocking_store(tier)
    key = manifests[1].key("log")
    content = store.get(key, 0, 10_000)
    store.put(key, content[:-1] + b"?")
    assert run(["tier", "check", "t", "--tier", tier]) == 0  # it does not read the data
    capsys.readouterr()
    (found,) = damaged(tier, "verify", capsys)["problems"]
    assert found["object"] == key.rpartition("/")[2]
    assert "CRC" in found["text"]
    store.delete(key)
    for command in ("check", "verify"):
        partition = damaged(tier, command, capsys)
        assert [each["text"] for each in partition["problems"]] == ["the object is missing"]
    assert run(["tier", "check", "t", "--tier", tier]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2:] == [
        "problem: partition 0: the object is missing",
        f"  {key.rpartition('/')[2]}",
    ]
    assert max(map(len, lines[1:])) <= 80


def test_many_leftovers_are_counted(
    tier: str, manifests: list[Manifest], capsys: pytest.CaptureFixture[str]
) -> None:
    store = open_blocking_store(tier)
    for number in range(60):
        store.put(manifests[0].key().replace("0000-", f"{number:04d}-") + "x", b"")
    assert run(["tier", "check", "t", "--tier", tier]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "and 10 notes more; --json lists all of them"


def test_wrong_usage(
    tier: str, manifests: list[Manifest], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert run(["tier", "check", "t", "--tier", "ftp://x"]) == 2
    assert "--tier: 'ftp://x' is not an object store" in capsys.readouterr().err
    assert run(["tier", "check", "t", "--tier", tier, "--topic-id", "x"]) == 2
    assert "--topic-id" in capsys.readouterr().err
    assert run(["tier", "check", "u", "--tier", tier]) == 1
    assert "nothing of a topic u" in capsys.readouterr().err
    assert run(["tier", "check", "t", "--tier", f"file:{tmp_path}/typo"]) == 1
    assert "there is no such directory" in capsys.readouterr().err
    assert not (tmp_path / "typo").exists()


def test_timestamps_that_no_calendar_has_are_shown_as_numbers() -> None:
    assert time_text(2**62) == str(2**62)
