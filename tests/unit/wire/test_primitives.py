"""Varints and tagged fields."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ottla.ports import Buffer
from ottla.wire.primitives import (
    DecodeError,
    read_svarint,
    read_svarlong,
    read_uvarint,
    skip_tags,
    svarint,
    svarlong,
    uvarint,
)

Read = Callable[[Buffer, int, int], tuple[int, int]]
Write = Callable[[int], bytes]


@pytest.mark.parametrize(
    ("write", "read", "value", "data"),
    [
        (uvarint, read_uvarint, 0, b"\0"),
        (uvarint, read_uvarint, 127, b"\x7f"),
        (uvarint, read_uvarint, 128, b"\x80\x01"),
        (uvarint, read_uvarint, 300, b"\xac\x02"),
        (uvarint, read_uvarint, 0xFFFFFFFF, b"\xff\xff\xff\xff\x0f"),
        (svarint, read_svarint, 0, b"\0"),
        (svarint, read_svarint, -1, b"\x01"),
        (svarint, read_svarint, 1, b"\x02"),
        (svarint, read_svarint, -64, b"\x7f"),
        (svarint, read_svarint, 64, b"\x80\x01"),
        (svarint, read_svarint, 2**31 - 1, b"\xfe\xff\xff\xff\x0f"),
        (svarint, read_svarint, -(2**31), b"\xff\xff\xff\xff\x0f"),
        (svarlong, read_svarlong, -1, b"\x01"),
        (svarlong, read_svarlong, 2**63 - 1, b"\xfe" + b"\xff" * 8 + b"\x01"),
        (svarlong, read_svarlong, -(2**63), b"\xff" * 9 + b"\x01"),
    ],
)
def test_known_bytes(write: Write, read: Read, value: int, data: bytes) -> None:
    assert write(value) == data
    assert read(b"?" + data + b"?", 1, len(data) + 1) == (value, len(data) + 1)


@pytest.mark.parametrize(
    ("read", "data"),
    [
        (read_uvarint, b"\x80" * 5 + b"\0"),
        (read_uvarint, b"\xff\xff\xff\xff\x10"),
        (read_svarint, b"\xff\xff\xff\xff\xff\x01"),
        (read_svarlong, b"\x80" * 10 + b"\0"),
        (read_svarlong, b"\xff" * 9 + b"\x02"),
    ],
)
def test_too_long(read: Read, data: bytes) -> None:
    with pytest.raises(DecodeError, match="more than"):
        read(data, 0, len(data))


@pytest.mark.parametrize("read", [read_uvarint, read_svarint, read_svarlong])
def test_cut_off(read: Read) -> None:
    for data in (b"", b"\x80", b"\xff\xff"):
        with pytest.raises(DecodeError, match="cut off"):
            read(data + b"\x01", 0, len(data))


def test_skip_tags() -> None:
    data = b"\2\0\3abc\x81\1\0rest"
    assert skip_tags(data, 0, len(data)) == len(data) - 4
    assert skip_tags(b"\0", 0, 1) == 1


def test_skip_tags_stops_at_the_end() -> None:
    for data in (b"", b"\1", b"\1\0", b"\1\0\3ab", b"\xff\xff\xff\xff\x0f"):
        with pytest.raises(DecodeError, match="cut off"):
            skip_tags(data + bytes(10), 0, len(data))


def test_many_tags_are_refused() -> None:
    few, many = 64, 65
    assert skip_tags(bytes([few]) + bytes(2 * few), 0, 1 + 2 * few) == 1 + 2 * few
    with pytest.raises(DecodeError, match="65 tagged fields are too many"):
        skip_tags(bytes([many]) + bytes(2 * many), 0, 1 + 2 * many)
