"""The task that looks at every record: what it changes, refuses and bounds."""

from __future__ import annotations

from random import Random

import pytest

from ottla.model.errors import ApiError, ErrorCode
from ottla.ports import run_task
from ottla.records import validation
from ottla.records.batch import HEADER_SIZE, parse_header, seal
from ottla.records.compression import replace_records
from ottla.records.record import build_batch, records_of
from ottla.records.structure import MAX_REPORTED
from ottla.records.validation import BATCH_START, TASK, Validation, result_of

ROOMY = 10**8


def run(batch: bytes | bytearray, asked: Validation) -> bytearray | None:
    """Run the task as a helper process does."""
    return result_of(run_task(TASK, asked.request(memoryview(batch))))


def batch_of(*keys: bytes | None, codec: int = 0, value: bytes = b"v") -> bytearray:
    return build_batch([(key, value, 0, ()) for key in keys], codec=codec)


def refusal(batch: bytes | bytearray, asked: Validation) -> ApiError:
    with pytest.raises(ApiError) as raised:
        run(batch, asked)
    return raised.value


def test_the_request_has_a_copy_of_the_batch() -> None:
    batch = batch_of(b"k")
    request = Validation(True, None, None, ROOMY).request(memoryview(batch))
    assert request[BATCH_START:] == batch


@pytest.mark.parametrize("codec", range(5))
def test_keys_are_checked_and_the_batch_stays(codec: int) -> None:
    asked = Validation(True, None, None, ROOMY)
    assert run(batch_of(b"a", b"b", codec=codec), asked) is None
    error = refusal(batch_of(b"a", None, b"c", None, codec=codec), asked)
    assert error.code == ErrorCode.INVALID_RECORD
    assert error.message == "Records of a compacted topic must have a key"
    assert list(error.bad_records) == [1, 3]


@pytest.mark.parametrize("source", range(5))
@pytest.mark.parametrize("target", range(5))
def test_another_codec(source: int, target: int) -> None:
    batch = batch_of(b"a", b"b", codec=source)
    changed = run(batch, Validation(True, target, None, ROOMY))
    assert changed is not None
    assert parse_header(changed, 0).compression == target
    assert records_of(changed) == records_of(batch)


def test_only_so_many_bad_records_are_told() -> None:
    error = refusal(batch_of(*[None] * (MAX_REPORTED + 5)), Validation(True, None, None, ROOMY))
    assert list(error.bad_records) == list(range(MAX_REPORTED))


@pytest.mark.interpreted
@pytest.mark.parametrize("codec", [1, 2, 3, 4])
@pytest.mark.parametrize(("checks_keys", "target"), [(True, None), (False, 1), (False, 3)])
def test_a_bomb(
    monkeypatch: pytest.MonkeyPatch, codec: int, checks_keys: bool, target: int | None
) -> None:
    monkeypatch.setattr(validation, "VALIDATED_LIMIT", 100_000)
    asked = Validation(checks_keys, target, None, ROOMY)
    run(batch_of(b"k", codec=codec, value=bytes(99_000)), asked)
    error = refusal(batch_of(b"k", codec=codec, value=bytes(200_000)), asked)
    assert error.code == ErrorCode.MESSAGE_TOO_LARGE
    assert "100000" in (error.message or "")


def test_what_is_stored_uncompressed_is_never_larger_than_the_topic_takes() -> None:
    batch = batch_of(b"k", codec=4, value=bytes(5000))
    size = HEADER_SIZE + 5000 + 20
    assert run(batch, Validation(False, 0, None, size)) is not None
    assert refusal(batch, Validation(False, 0, None, 5000)).code == ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("codec", range(5))
@pytest.mark.parametrize("count", [1, 2, 100])
@pytest.mark.parametrize("size", [0, 1, 7])
def test_records_that_decompress_to_next_to_nothing(codec: int, count: int, size: int) -> None:
    batch = batch_of(*[b"key"] * count)
    batch = replace_records(batch, 0, bytes(size), codec, None)
    error = refusal(batch, Validation(False, None, None, ROOMY))
    assert error.code == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", range(5))
@pytest.mark.parametrize("keys", [[b"key"], [None], [b"key"] * 20, [None] * 20, [None] * 200])
def test_whatever_is_damaged_is_refused_or_can_be_read(codec: int, keys: list[bytes]) -> None:
    chance = Random(codec)
    batch = batch_of(*keys, codec=codec, value=b"some value")
    for _ in range(200):
        damaged = bytearray(batch)
        for _ in range(chance.randint(1, 3)):
            damaged[chance.randrange(HEADER_SIZE, len(damaged))] = chance.randrange(256)
        try:
            run(damaged, Validation(False, None, None, ROOMY))
        except ApiError:
            continue
        assert len(records_of(damaged)) == len(keys)


@pytest.mark.parametrize("codec", range(5))
def test_damaged_batches_are_refused_and_nothing_else(codec: int) -> None:
    chance = Random(codec)
    batch = batch_of(*[b"key"] * 20, codec=codec, value=b"some value")
    codes: set[ErrorCode] = set()
    for _ in range(300):
        damaged = bytearray(batch)
        for _ in range(chance.randint(1, 5)):
            damaged[chance.randrange(HEADER_SIZE, len(damaged))] = chance.randrange(256)
        seal(damaged, 0, len(damaged))
        try:
            run(damaged, Validation(True, 3, None, ROOMY))
        except ApiError as error:
            codes.add(error.code)
    assert codes
    assert codes <= {ErrorCode.INVALID_RECORD, ErrorCode.MESSAGE_TOO_LARGE}
