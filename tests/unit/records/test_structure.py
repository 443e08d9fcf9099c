"""The check of a client's records: what passes, what is refused, and how much work it is."""

from __future__ import annotations

from random import Random

import pytest

from ottla.model.errors import ApiError, ErrorCode
from ottla.records.batch import HEADER_SIZE, CorruptBatch, parse_header
from ottla.records.record import NewRecord, build_batch, records_of
from ottla.records.structure import (
    MAX_REPORTED,
    UNLIMITED,
    OutOfSteps,
    RecordRules,
    check_records,
)

NOW = 1_700_000_000_000
ANY = RecordRules()
HEADERS = (("trace", b"0123"), ("empty", b""), ("none", None))
LAYOUTS: dict[str, list[NewRecord]] = {
    "one": [(None, b"value", NOW, ())],
    "no key, one size": [(None, b"v" * 100, NOW + n // 9, ()) for n in range(300)],
    "few of one size": [(None, b"v" * 100, NOW + n, ()) for n in range(16)],
    "large": [(b"key", b"v" * 9000, NOW + n, ()) for n in range(40)],
    "null values": [(b"key", None, NOW, ()) for _ in range(50)],
    "headers": [(b"k" * 10, b"v" * 30, NOW + n, HEADERS) for n in range(200)],
    "many sizes": [(b"%d" % n, b"v" * (n % 90), NOW - n * 7, ()) for n in range(300)],
    "long keys": [(b"k" * 100, b"v" * (n % 90), NOW, ()) for n in range(60)],
    "wide timestamps": [(None, b"v", NOW + n * 10**9, ()) for n in range(100)],
    "runs": [(None, b"v" * (n // 40), NOW, ()) for n in range(400)],
}


def check(batch: bytearray, rules: RecordRules = ANY, steps: int = UNLIMITED) -> int:
    """Return the steps that the check of a batch without compression takes."""
    header = parse_header(batch, 0)
    left = check_records(
        batch, HEADER_SIZE, len(batch), header.record_count, header.base_timestamp, rules, steps
    )
    return steps - left


def refusal(batch: bytearray, rules: RecordRules = ANY) -> ApiError:
    with pytest.raises(ApiError) as raised:
        check(batch, rules)
    return raised.value


def counted(batch: bytearray, count: int) -> bytearray:
    """Return the batch with another record count."""
    batch = bytearray(batch)
    batch[57:61] = count.to_bytes(4, "big")
    return batch


@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_clients_send_passes(layout: str) -> None:
    assert check(build_batch(LAYOUTS[layout])) > 0


@pytest.mark.parametrize("count", [63, 64, 65, 66, 8191, 8192, 8193, 8300, 17_000])
def test_offset_deltas_of_all_widths(count: int) -> None:
    batch = build_batch([(None, b"v" * 20, NOW, ()) for _ in range(count)])
    assert check(batch) < 200
    for index in (0, 1, 40, count // 2, count - 1):
        records = list(LAYOUTS["one"]) * count
        batch = build_batch(records)
        size_before = len(build_batch(records[:index])) if index else HEADER_SIZE
        batch[size_before + 3] ^= 2  # its offset delta, the value is a short one
        assert list(refusal(batch).bad_records) == [index]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_it_refuses_exactly_what_cannot_be_read(layout: str) -> None:
    """Bytes are changed at random. A batch passes if and only if a consumer can read it."""
    chance = Random(layout)
    batch = build_batch(LAYOUTS[layout])
    outcomes = set()
    for _ in range(400):
        damaged = bytearray(batch)
        for _ in range(chance.choice((1, 1, 2))):
            at = chance.randrange(HEADER_SIZE, len(damaged))
            damaged[at] = chance.choice((0, 1, 2, damaged[at] ^ 0x80, chance.randrange(256)))
        try:
            records_of(damaged)
        except CorruptBatch:
            error = refusal(damaged)
            assert error.code in (ErrorCode.INVALID_RECORD, ErrorCode.INVALID_TIMESTAMP)
            assert error.message
            outcomes.add(False)
        else:
            check(damaged)
            outcomes.add(True)
    assert True in outcomes
    assert False in outcomes


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("change", [-1, 1, 100])
def test_a_count_that_lies(layout: str, change: int) -> None:
    records = LAYOUTS[layout]
    if len(records) + change:
        batch = counted(build_batch(records), len(records) + change)
        assert refusal(batch).code == ErrorCode.INVALID_RECORD


def test_two_thousand_million_records_in_75_bytes() -> None:
    batch = counted(build_batch([(None, b"1234567", NOW, ())]), 2**31 - 1)
    assert len(batch) == 75
    assert refusal(batch).code == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("noise", [b"\xff", b"\x00", b"\x80", b"\x7f", b"\x02", b"garbage"])
def test_garbage(noise: bytes) -> None:
    batch = build_batch(LAYOUTS["no key, one size"])
    size = len(batch) - HEADER_SIZE
    batch[HEADER_SIZE:] = (noise * size)[:size]
    error = refusal(batch)
    assert error.code == ErrorCode.INVALID_RECORD
    assert list(error.bad_records) == [0]


def test_the_index_of_the_bad_record() -> None:
    batch = build_batch(LAYOUTS["no key, one size"])
    at = len(build_batch(LAYOUTS["no key, one size"][:200]))
    batch[at] ^= 4
    error = refusal(batch)
    assert list(error.bad_records) == [200]
    assert "Record 200" in (error.message or "")


@pytest.mark.parametrize("delta", [0, 5, 70, 9000, 2**21, 2**30])
def test_timestamps_of_records(delta: int) -> None:
    late = [(b"k", b"v" * 9, NOW, ()) for _ in range(50)]
    late[30] = (b"k", b"v" * 9, NOW + delta, ())
    late[40] = (b"k", b"v" * 9, -1, ())
    batch = build_batch(late)
    check(batch, RecordRules(False, NOW, NOW + delta))
    if delta:
        error = refusal(batch, RecordRules(False, NOW, NOW + delta - 1))
        assert error.code == ErrorCode.INVALID_TIMESTAMP
        assert list(error.bad_records) == [30]
        assert str(NOW + delta) in error.bad_records[30]
    error = refusal(batch, RecordRules(False, NOW + 1, NOW + 2**40))
    assert len(error.bad_records) == (48 if delta else 49)


def test_keys() -> None:
    records = [(b"k" if n % 3 else None, b"v", NOW, ()) for n in range(90)]
    error = refusal(build_batch(records), RecordRules(needs_keys=True))
    assert error.code == ErrorCode.INVALID_RECORD
    assert list(error.bad_records) == list(range(0, 90, 3))
    keyless = build_batch([(None, b"v", NOW, ())] * (MAX_REPORTED + 9))
    assert len(refusal(keyless, RecordRules(needs_keys=True)).bad_records) == MAX_REPORTED


def test_many_records_of_one_size_take_few_steps() -> None:
    for records in (
        [(None, b"v" * 100, NOW + n // 1000, ()) for n in range(9000)],
        [(b"key", b"v" * 100, NOW + n // 50, HEADERS) for n in range(9000)],
    ):
        assert check(build_batch(records)) < 400


def test_other_records_take_a_step_each() -> None:
    records = [(b"k" * (n % 7), b"v" * (n * 31 % 90), NOW, ()) for n in range(3000)]
    batch = build_batch(records)
    assert 3000 <= check(batch) < 3500
    with pytest.raises(OutOfSteps):
        check(batch, steps=2000)


@pytest.mark.parametrize(
    "records",
    [
        [(None, b"v" * (n // 2 % 50), NOW, ()) for n in range(20_000)],  # pairs of one size
        [(None, b"v" * (n // 17 % 50), NOW, ()) for n in range(20_000)],  # just too few
        [(b"k", b"v", NOW, [("h", b"x")] * (n % 9)) for n in range(20_000)],
        [(b"k", b"v", NOW, [("", b"")] * 60_000)],
    ],
)
def test_hostile_records_run_out_of_steps(records: list[NewRecord]) -> None:
    with pytest.raises(OutOfSteps):
        check(build_batch(records), steps=8000)
