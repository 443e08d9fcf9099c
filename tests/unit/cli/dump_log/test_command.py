"""The dump-log command: files and directories, tables, pages, usage."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ottla.cli.app import run
from ottla.cli.dump_log.command import dump
from ottla.records.record import NewRecord, build_batch
from tests.support.dump_log import (
    BASE,
    INDEX,
    LOG,
    lines_of,
    make_batches,
    write_file,
    write_offset_index,
    write_segment,
)


def test_missing_and_unknown_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sound = write_file(tmp_path, LOG, make_batches(1)[0])
    missing, unknown = str(tmp_path / "absent.log"), write_file(tmp_path, "notes.txt", b"")
    assert dump([sound, missing, unknown]) == 2
    output = capsys.readouterr()
    assert output.out == "", "nothing is shown before the command line makes sense"
    assert missing in output.err
    assert unknown in output.err
    assert ".timeindex" in output.err


def test_a_directory_is_all_its_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_segment(tmp_path)
    write_offset_index(tmp_path, [])
    write_file(tmp_path, ".lock", b"")
    below = tmp_path / "topic-0"
    below.mkdir()
    write_file(below, LOG, make_batches(1)[0])
    assert dump([str(tmp_path)], as_json=True) == 0
    assert [Path(str(line["file"])).name for line in lines_of(capsys, "file")] == [INDEX, LOG]
    assert dump([str(tmp_path)], as_json=True, recursive=True) == 0
    assert len(lines_of(capsys, "file")) == 3


def test_verify_only_shows_no_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_file(tmp_path, LOG, b"".join(make_batches(3)))
    assert dump([path], deep=True, verify_only=True, as_json=True) == 0
    kinds = [json.loads(line)["kind"] for line in capsys.readouterr().out.splitlines()]
    assert kinds == ["file", "summary"]


def test_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    batches = make_batches(2)
    path = write_file(tmp_path, LOG, batches[0] + batches[1] + b"torn")
    assert run(["dump-log", path]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"{path}: segment, {sum(map(len, batches)) + 4} bytes"
    assert lines[1].split() == [
        "offsets", "count", "position", "size", "codec", "largest", "timestamp", "epoch", "crc",
    ]  # fmt: skip
    assert lines[2].split()[:5] == ["100-101", "2", "0", str(len(batches[0])), "none"]
    assert "1970-01-01 00:00:01.001" in lines[3]
    assert lines[4].startswith(f"  DAMAGED at {sum(map(len, batches))}: ")
    assert lines[5].endswith("damaged in one place")


def test_tables_of_records(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    records: list[NewRecord] = [
        (b"k", b"line\nline", 1, [("h", b"\xff")]), (None, b"long" * 100, 2, ()),
    ]  # fmt: skip
    path = write_file(tmp_path, LOG, build_batch(records, base_offset=BASE))
    assert run(["dump-log", "--deep", path]) == 0
    output = capsys.readouterr().out
    assert "batch: offsets 100-101, count 2" in output
    assert "'line\\nline'" in output
    assert "h=0xff" in output
    assert "(400 characters)" in output
    assert "no damage" in output


def test_pages_do_not_lose_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_file(tmp_path, LOG, b"".join(make_batches(1203)))
    assert run(["dump-log", path]) == 0
    rows = [line for line in capsys.readouterr().out.splitlines() if line.endswith(" ok")]
    assert len(rows) == 1203


def test_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["dump-log"]) == 2
    assert run(["dump-log", "--no-such-option", "x.log"]) == 2
    assert run(["dump-log", "/does/not/exist.log"]) == 2
