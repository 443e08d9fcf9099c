from __future__ import annotations

import io

import pytest

from ottla.cli.errors import UsageError
from ottla.cli.groups.reset_offsets import parse_scope
from ottla.cli.groups.view import lag_as_json, partitions_text, print_lag
from ottla.cli.main import main
from ottla.cli.times import duration_ms, timestamp_ms
from ottla.client.address import Address
from ottla.client.groups.coordinators import GroupCoordinator
from ottla.client.groups.lag import PartitionLag
from ottla.client.groups.members import GroupDescription
from ottla.client.groups.offsets import Committed
from ottla.client.groups.reset import TopicScope
from ottla.model.ids import TopicPartition

HOUR_MS = 3_600_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1d", 24 * HOUR_MS),
        ("90m", HOUR_MS + HOUR_MS // 2),
        ("1h30m", HOUR_MS + HOUR_MS // 2),
        ("1d12h", 36 * HOUR_MS),
        ("2.5s", 2500),
        ("P1D", 24 * HOUR_MS),
        ("P1DT12H", 36 * HOUR_MS),
        ("PT1H30M", HOUR_MS + HOUR_MS // 2),
        ("PT0S", 0),
        ("pt15s", 15_000),
    ],
)
def test_durations(text: str, expected: int) -> None:
    assert duration_ms(text, "--by-duration") == expected


@pytest.mark.parametrize("text", ["", "P", "PT", "1", "1y", "h", "-1h", "1h-", "P1DT", "1m1h"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(UsageError, match=r"--by-duration .* should be a duration like 1d12h30m"):
        duration_ms(text, "--by-duration")


def test_moments() -> None:
    assert timestamp_ms("1970-01-01T00:00:01+00:00", "--at") == 1000
    assert timestamp_ms("1500", "--at") == 1500
    assert timestamp_ms("1960-01-01T00:00:00+00:00", "--at") == 0
    for text in ("noon", "2026-13-01", "1e3", "99999999-01-01", str(2**63)):
        with pytest.raises(UsageError, match="--at"):
            timestamp_ms(text, "--at")


def test_scopes() -> None:
    assert parse_scope("t") == TopicScope("t", [])
    assert parse_scope("t:0,2,10") == TopicScope("t", [0, 2, 10])
    for text in ("", ":1", "t:", "t:a", "t:1,", "t:-1", "t:1:2"):
        with pytest.raises(UsageError, match="topic:0,1,2"):
            parse_scope(text)


def test_partitions_in_short() -> None:
    partitions = [TopicPartition("b", 1), *(TopicPartition("a", n) for n in (7, 0, 1, 2, 3, 9))]
    assert partitions_text(partitions) == "a:0-3,7,9 b:1"
    assert partitions_text([]) == "-"


def test_offsets_may_come_from_stdin(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("t,0,5\nt,x,3\n"))
    assert main(["groups", "reset-offsets", "g", "--from-file", "-"]) == 1
    assert "stdin, line 2: expected topic,partition,offset" in capsys.readouterr().err


def test_a_partition_twice_in_a_file_is_refused(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("t,0,5\nt,1,5\nt,0,7\n"))
    assert main(["groups", "reset-offsets", "g", "--from-file", "-"]) == 1
    assert "stdin, line 3: t-0 is there twice" in capsys.readouterr().err


def test_a_group_that_has_not_committed_anything_has_no_lag_of_0(
    capsys: pytest.CaptureFixture[str],
) -> None:
    coordinator = GroupCoordinator(1, Address("127.0.0.1", 9092))
    group = GroupDescription(
        "billing", "classic", "consumer", "Stable", "range", None, None, coordinator, []
    )
    new = PartitionLag(TopicPartition("events", 0), None, 1000, None)
    print_lag(group, [new])
    assert "  lag -\n" in capsys.readouterr().out
    assert _lag(lag_as_json(group, [new])) is None
    behind = PartitionLag(TopicPartition("events", 1), Committed(40, -1, ""), 52, None)
    assert _lag(lag_as_json(group, [new, behind])) == 12
    assert _lag(lag_as_json(group, [])) == 0


def _lag(told: object) -> object:
    assert isinstance(told, dict)
    return told["lag"]
