"""Functions that write segments to dump, and that parse the output."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from struct import pack

import pytest

from ottla.cli.dump_log.command import dump
from ottla.records.record import build_batch

LOG = "00000000000000000100.log"
INDEX = "00000000000000000100.index"
TIME_INDEX = "00000000000000000100.timeindex"
BASE = 100

Line = Mapping[str, object]


def make_batches(count: int = 4, *, first: int = BASE, epoch: int = 5) -> list[bytearray]:
    """Return batches of two records, 1,000 ms apart."""
    return [
        build_batch(
            [(b"key", b"value", 1000 * n, ()), (None, b"\xff\x00", 1000 * n + 1, [("h", None)])],
            base_offset=first + 2 * n,
            codec=n % 5,
            leader_epoch=epoch,
        )
        for n in range(count)
    ]


def positions_of(batches: list[bytearray]) -> list[int]:
    return [sum(map(len, batches[:n])) for n in range(len(batches))]


def write_file(directory: Path, name: str, content: bytes | bytearray) -> str:
    path = directory / name
    path.write_bytes(content)
    return str(path)


def lines_of(capsys: pytest.CaptureFixture[str], kind: str) -> list[Line]:
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    return [line for line in lines if line["kind"] == kind]


def damages_of(
    capsys: pytest.CaptureFixture[str], path: str, *, deep: bool = False
) -> list[tuple[object, object]]:
    """Return the positions and reasons of all damages, and check the exit code."""
    code = dump([path], deep=deep, as_json=True)
    damages = lines_of(capsys, "damage")
    assert code == (1 if damages else 0)
    return [(damage["position"], damage["reason"]) for damage in damages]


def write_segment(directory: Path) -> tuple[list[bytearray], list[int]]:
    batches = make_batches(10)
    write_file(directory, LOG, b"".join(batches))
    return batches, positions_of(batches)


def write_offset_index(directory: Path, entries: list[tuple[int, int]], room: int = 0) -> str:
    content = b"".join(pack(">ii", offset - BASE, position) for offset, position in entries)
    return write_file(directory, INDEX, content + bytes(8 * room))


def write_time_index(directory: Path, entries: list[tuple[int, int]], room: int = 0) -> str:
    content = b"".join(pack(">qi", timestamp, offset - BASE) for timestamp, offset in entries)
    return write_file(directory, TIME_INDEX, content + bytes(12 * room))
