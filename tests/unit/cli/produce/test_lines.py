from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.cli.errors import DataError
from ottla.cli.produce import lines
from ottla.cli.produce.lines import read_lines


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for end in ends:
        try:
            os.close(end)
        except OSError:
            pass  # closed by the test


def all_lines(path: Path) -> list[bytes]:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return [line for group in read_lines(descriptor) for line in group.lines]
    finally:
        os.close(descriptor)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", []),
        (b"\n", [b""]),
        (b"a\nb\n", [b"a", b"b"]),
        (b"a\nb", [b"a", b"b"]),
        (b"a\r\n\nb", [b"a\r", b"", b"b"]),
    ],
)
def test_lines_of_a_file(tmp_path: Path, content: bytes, expected: list[bytes]) -> None:
    path = tmp_path / "lines"
    path.write_bytes(content)
    assert all_lines(path) == expected


def test_lines_longer_than_what_is_read_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "CHUNK_BYTES", 7)
    expected = [b"x" * length for length in (0, 6, 7, 8, 20, 1)]
    path = tmp_path / "lines"
    path.write_bytes(b"\n".join(expected))
    assert all_lines(path) == expected


def test_a_line_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "MAX_LINE_BYTES", 100)
    monkeypatch.setattr(lines, "CHUNK_BYTES", 64)
    path = tmp_path / "lines"
    path.write_bytes(b"first\n" + bytes(200))
    with pytest.raises(DataError, match="longer than 100 bytes"):
        all_lines(path)


def test_a_pause_is_noticed(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    os.write(writer, b"one\ntwo\nthr")
    groups = read_lines(reader)
    assert next(groups) == ([b"one", b"two"], True)
    os.write(writer, b"ee\n")
    os.close(writer)
    # The end of a pipe counts as something to read.
    assert next(groups) == ([b"three"], False)
    assert list(groups) == []
