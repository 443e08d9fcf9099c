"""The two maps of keys select the same records."""

from __future__ import annotations

from typing import TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.log.cleaner.cleaning_session import new_key_offsets
from ottla.log.cleaner.compiled_key_offsets import CompiledKeyOffsets, siphash
from ottla.log.cleaner.key_offsets import KeyOffsets
from ottla.records.batch import HEADER_SIZE, CorruptBatch
from ottla.records.record import build_batch

np = pytest.importorskip("numpy")

Map: TypeAlias = KeyOffsets | CompiledKeyOffsets
KEYS = st.one_of(st.binary(max_size=3), st.binary(min_size=14, max_size=18), st.none())
RECORDS = st.lists(
    st.tuples(
        KEYS,
        st.one_of(st.none(), st.binary(max_size=150)),
        st.integers(1_700_000_000_000 - 10**7, 1_700_000_000_000 + 10**7),
        st.just(()) | st.just((("h", b"1"), ("h", None))),
    ),
    min_size=1,
    max_size=80,
)


def both(memory_keys: int = 1000) -> list[Map]:
    return [
        KeyOffsets(208 * memory_keys, 1.0),
        CompiledKeyOffsets(24 * (memory_keys + 1), 1.0, b"a secret of 16 b"),
    ]


@given(RECORDS, st.integers(0, 90), st.integers(0, 90), st.booleans())
@settings(max_examples=60, deadline=None)
def test_both_select_the_same(records, first, latest, keep_tombstones) -> None:  # type: ignore[no-untyped-def]
    data = bytes(build_batch(records)[HEADER_SIZE:])
    results = []
    for offsets in both():
        assert offsets.add(data, 5, len(records), first)
        chosen = offsets.select(data, 5, len(records), latest, keep_tombstones=keep_tombstones)
        results.append((len(offsets), chosen._replace(max_timestamp_delta=0), chosen))
    assert results[0] == results[1]


@given(RECORDS, st.integers(0, 10**6), st.integers(0, 255))
@settings(max_examples=60, deadline=None)
def test_both_survive_damage(records, at, byte) -> None:  # type: ignore[no-untyped-def]
    data = bytearray(build_batch(records)[HEADER_SIZE:])
    data[at % len(data)] = byte
    for offsets in both():
        try:
            offsets.add(bytes(data), 0, len(records), 0)
            offsets.select(bytes(data), 0, len(records), 10**9, keep_tombstones=True)
        except (CorruptBatch, IndexError):
            pass


@pytest.mark.parametrize("number", [0, 1])
def test_a_full_map_takes_known_keys_only(number: int) -> None:
    offsets = both(2)[number]
    three = bytes(build_batch([(bytes([n]), b"", 0, ()) for n in range(3)])[HEADER_SIZE:])
    two = bytes(build_batch([(bytes([n]), b"", 0, ()) for n in range(2)])[HEADER_SIZE:])
    assert not offsets.add(three, 0, 3, 0)
    assert offsets.add(two, 10, 2, 0)
    assert len(offsets) == 2
    assert offsets.utilization == 1.0


def test_the_hash_is_siphash() -> None:
    """The vectors of SipHash's authors for 128 bits."""
    secret = np.frombuffer(bytes(range(16)), np.uint64)
    expected = {0: "a3817f04ba25a8e66df67214c7550293", 15: "5493e99933b0a8117e08ec0f97cfc3d9"}
    for length, digest in expected.items():
        data = np.frombuffer(bytes(range(16)), np.uint8)
        high, low = siphash(data, 0, length, secret)
        assert (
            int(high).to_bytes(8, "little").hex() + int(low).to_bytes(8, "little").hex() == digest
        )


def test_large_logs_get_the_compiled_map() -> None:
    assert isinstance(new_key_offsets(2400, 0.9, b"seed", compiled=True), CompiledKeyOffsets)
    assert isinstance(new_key_offsets(2400, 0.9, b"seed", compiled=False), KeyOffsets)


def test_the_table_grows_with_its_keys() -> None:
    plain, compiled = both(300_000)
    count = 5000
    for batch in range(20):
        records = [(b"key-%d" % (batch * count + n), b"v", 0, ()) for n in range(count)]
        data = bytes(build_batch(records)[HEADER_SIZE:])
        assert plain.add(data, batch * count, count, 0)
        assert compiled.add(data, batch * count, count, 0)
    assert len(compiled) == len(plain) == 20 * count
    for offset in (0, 99, 100):
        data = bytes(build_batch([(b"key-99", b"v", 0, ())])[HEADER_SIZE:])
        results = [
            each.select(data, offset, 1, 10**9, keep_tombstones=True) for each in (plain, compiled)
        ]
        assert results[0].kept == results[1].kept == (offset >= 99)
