from __future__ import annotations

import json
from pathlib import Path

import pytest

from ottla.cli.app import run
from ottla.cli.dump_log.command import dump
from ottla.coordinator.groups.consumer.records import (
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
)
from ottla.coordinator.groups.record_serde import encode
from ottla.coordinator.groups.records import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
)
from ottla.records.record import build_batch

LOG = "00000000000000000000.log"
# Version 0: one topic "t"; no user data. And: topic "t" with partitions 1 and 2.
SUBSCRIPTION = bytes.fromhex("0000 00000001 0001 74 ffffffff")
ASSIGNMENT = bytes.fromhex("0000 00000001 0001 74 00000002 00000001 00000002 ffffffff")


def _segment(directory: Path, *records: tuple[bytes, bytes | None]) -> str:
    path = directory / LOG
    path.write_bytes(build_batch([(key, value, 1000, ()) for key, value in records]))
    return str(path)


def _records(path: str, capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    assert dump([path], offsets=True, as_json=True) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    return [line for line in lines if line["kind"] == "record"]


def test_commits_and_tombstones(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    key = OffsetCommitKey(group="g", topic="t", partition=3)
    value = OffsetCommitValue(offset=42, leader_epoch=1, metadata="m", commit_timestamp=7)
    path = _segment(tmp_path, encode((key, value)), encode((key, None)))
    commit, deleted = _records(path, capsys)
    assert commit["type"] == deleted["type"] == "OffsetCommit"
    assert commit["key"] == deleted["key"] == {"group": "g", "topic": "t", "partition": 3}
    shown = commit["value"]
    assert isinstance(shown, dict)
    assert (shown["offset"], shown["leaderEpoch"], shown["metadata"]) == (42, 1, "m")
    assert (deleted["version"], deleted["value"]) == (None, None)


def test_members_of_classic_consumers_are_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    member = MemberMetadata(
        member_id="m", client_id="c", subscription=SUBSCRIPTION, assignment=ASSIGNMENT
    )
    other = MemberMetadata(member_id="n", subscription=b"\xff", assignment=b"")
    value = GroupMetadataValue(
        protocol_type="consumer",
        generation=4,
        protocol="range",
        leader="m",
        members=[member, other],
    )
    path = _segment(tmp_path, encode((GroupMetadataKey(group="g"), value)))
    (shown,) = _records(path, capsys)
    assert shown["type"] == "GroupMetadata"
    members = shown["value"]["members"]  # type: ignore[index]
    assert [m["subscription"] for m in members] == [["t"], {"hex": "ff"}]
    assert [m["assignment"] for m in members] == [["t-1", "t-2"], ""]


def test_groups_of_the_new_protocol_and_kinds_nobody_knows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    metadata = encode((ConsumerGroupMetadataKey(group_id="g"), ConsumerGroupMetadataValue(epoch=5)))
    path = _segment(tmp_path, metadata, (b"\x7f\x00new", b"\x00\x02x"))
    known, unknown = _records(path, capsys)
    assert (known["type"], known["key"]) == ("ConsumerGroupMetadata", {"groupId": "g"})
    assert (unknown["type"], unknown["version"]) == ("kind 32512", 2)
    assert (unknown["key"], unknown["value"]) == ({"hex": "7f006e6577"}, {"hex": "000278"})


@pytest.mark.parametrize(
    "record", [(b"\x00\x01\x00", None), (b"", None), (b"\x00\x02\x00\x01g", b"")]
)
def test_damaged_records_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], record: tuple[bytes, bytes | None]
) -> None:
    assert dump([_segment(tmp_path, record)], offsets=True, as_json=True) == 1
    assert '"damage"' in capsys.readouterr().out


def test_one_decoder_at_a_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = _segment(tmp_path, (b"\x00\x01", None))
    assert run(["dump-log", path, "--offsets", "--cluster-metadata-decoder"]) == 2
    assert "give only one" in capsys.readouterr().err


def test_a_table_for_people(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    key = OffsetCommitKey(group="g", topic="t", partition=3)
    path = _segment(tmp_path, encode((key, OffsetCommitValue(offset=42))))
    assert run(["dump-log", path, "--offsets"]) == 0
    out = capsys.readouterr().out
    assert '{"group": "g", "topic": "t", "partition": 3}' in out
    assert "OffsetCommit" in out
