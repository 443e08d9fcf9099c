"""Varints of any value round-trip, in as few bytes as their bits need."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ottla.wire.primitives import (
    read_svarint,
    read_svarlong,
    read_uvarint,
    svarint,
    svarlong,
    uvarint,
)


@given(st.integers(0, 2**32 - 1))
def test_uvarint(value: int) -> None:
    data = uvarint(value)
    assert len(data) == max(1, (value.bit_length() + 6) // 7)
    assert read_uvarint(data, 0, len(data)) == (value, len(data))


@given(st.integers(-(2**31), 2**31 - 1))
def test_svarint(value: int) -> None:
    data = svarint(value)
    assert read_svarint(data, 0, len(data)) == (value, len(data))
    assert svarlong(value) == data


@given(st.integers(-(2**63), 2**63 - 1))
def test_svarlong(value: int) -> None:
    data = svarlong(value)
    assert read_svarlong(data, 0, len(data)) == (value, len(data))
