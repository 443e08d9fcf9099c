"""Broken and hostile bytes: decoding ends in a message or a DecodeError, and allocates little.

Frames of every message are cut, flipped and given huge lengths, both at the end of their buffer
and in the middle of a larger one, where a careless decoder would read on into the next frame.
"""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Iterator

import pytest

from ottla.ports import Buffer
from ottla.wire.apis import API_INFO, request_class, response_class
from ottla.wire.codec import DecodeError, decoder, encoder
from ottla.wire.header import decode_request_header, decode_response_header
from ottla.wire.message import Field, Message

# int16, int32 and varint lengths that must be refused before anything is allocated.
HUGE_LENGTHS = (b"\x7f\xff", b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\x7f")
NEGATIVE_LENGTHS = (b"\xff\xfe", b"\x80\x00\x00\x00", b"\xff\xff\xff\xfe")
NEXT_FRAME = bytes(range(0, 250, 7)) * 4
# What decoding may take: an error with its traceback, and objects for what is really there.
FIXED_BYTES = 16 * 1024
OBJECT_BYTES_PER_BYTE = 50


def random_message(message: type[Message], rng: random.Random, depth: int = 0) -> Message:
    """Draw a message with all fields filled. Arrays are shorter the deeper they are."""
    made = message()
    for field in message.FIELDS:
        setattr(made, field.name, random_field(field, rng, depth))
    return made


def random_field(field: Field, rng: random.Random, depth: int) -> object:
    if field.type == "array":
        count = rng.randint(0, 1) if depth > 1 else rng.randint(1, 2)
        return [random_item(field.of, rng, depth) for _ in range(count)]
    return random_item(field.of if field.type == "struct" else field.type, rng, depth)


def random_item(type_: str | type[Message] | None, rng: random.Random, depth: int) -> object:
    if isinstance(type_, type):
        return random_message(type_, rng, depth + 1)
    if type_ == "string":
        return rng.choice(("", "topic", "n" * 130))
    if type_ in ("bytes", "records"):
        return rng.randbytes(rng.choice((0, 5, 140)))
    if type_ == "uuid":
        return rng.randbytes(16)
    return rng.randrange(100)


def frames() -> Iterator[tuple[type[Message], int, bytes]]:
    """Yield messages of every class: oldest, newest, first flexible and another version."""
    rng = random.Random(2024)
    for key, info in API_INFO.items():
        versions = {info.min_version, info.max_version, info.first_flexible or info.min_version}
        versions.add(rng.randint(info.min_version, info.max_version))
        for message in (request_class(key), response_class(key)):
            for version in sorted(versions):
                yield message, version, encoder(message, version)(random_message(message, rng))


def survives(message: type[Message], version: int, buffer: Buffer, start: int, end: int) -> bool:
    """Return whether the bytes were taken; anything but a message or a DecodeError is a failure."""
    reason = ""
    try:
        _, position = decoder(message, version)(buffer, start, end)
    except DecodeError as error:
        reason = str(error)
    if reason:
        assert reason.startswith(f"{message.__name__} v{version}: ")
        return False
    assert start <= position <= end
    return True


def positions(length: int, rng: random.Random, limit: int) -> list[int]:
    return list(range(length)) if length <= limit else sorted(rng.sample(range(length), limit))


def test_a_cut_frame_is_refused_and_the_next_one_not_read() -> None:
    rng = random.Random(1)
    for message, version, data in frames():
        buffer = data + NEXT_FRAME
        for cut in positions(len(data), rng, 40):
            assert not survives(message, version, data[:cut], 0, cut)
            assert not survives(message, version, buffer, 0, cut)
            following = bytearray(data)
            following[cut:] = b"\xff" * (len(data) - cut)  # null lengths right after the cut
            assert not survives(message, version, following, 0, cut)
        assert survives(message, version, memoryview(buffer), 0, len(data))


def test_flipped_bytes_end_in_a_message_or_a_decode_error() -> None:
    rng = random.Random(2)
    refused = taken = 0
    for message, version, data in frames():
        for _ in range(40):
            broken = bytearray(data)
            for _ in range(rng.choice((1, 1, 2, 5)) if data else 0):
                position = rng.randrange(len(data))
                broken[position] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
            if survives(message, version, broken, 0, len(broken)):
                taken += 1
            else:
                refused += 1
    assert refused > 1000
    assert taken > 1000


def test_random_bytes_end_in_a_message_or_a_decode_error() -> None:
    rng = random.Random(3)
    for message, version, _ in frames():
        for size in (0, 1, 3, 10, 60, 400):
            noise = rng.randbytes(size)
            survives(message, version, noise, 0, size)
            survives(message, version, bytes(size), 0, size)


def test_huge_and_negative_lengths_allocate_nothing() -> None:
    rng = random.Random(4)
    samples = list(frames())
    for message, version, data in samples:  # generated code is not what is measured
        survives(message, version, data, 0, len(data))
    tracemalloc.start()
    try:
        for message, version, data in samples:
            most = FIXED_BYTES + OBJECT_BYTES_PER_BYTE * len(data)
            where = positions(len(data), rng, 12)
            # Threads of other tests may allocate meanwhile. What a length allocates comes again.
            assert any(peak_bytes(message, version, data, where) < most for _ in range(3))
    finally:
        tracemalloc.stop()


def peak_bytes(message: type[Message], version: int, data: bytes, where: list[int]) -> int:
    before = tracemalloc.get_traced_memory()[0]
    tracemalloc.reset_peak()
    for broken in with_lengths_overwritten(data, where):
        survives(message, version, broken, 0, len(broken))
    return tracemalloc.get_traced_memory()[1] - before


def with_lengths_overwritten(data: bytes, where: list[int]) -> Iterator[bytearray]:
    for position in where:
        for length in (*HUGE_LENGTHS, *NEGATIVE_LENGTHS):
            broken = bytearray(data)
            broken[position : position + len(length)] = length
            yield broken


@pytest.mark.parametrize("seed", range(4))
def test_headers_survive_anything(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(3000):
        key = rng.choice(list(API_INFO))
        start = key.to_bytes(2, "big") + rng.randrange(20).to_bytes(2, "big")
        frame = start + rng.randbytes(rng.randrange(24))
        with_next = frame + NEXT_FRAME
        for buffer in (frame, with_next):
            try:
                header = decode_request_header(buffer, 0, len(frame))
                assert header.body <= len(frame)
            except DecodeError:
                pass
            try:
                _, body = decode_response_header(key, 9, buffer, 0, len(frame))
                assert body <= len(frame)
            except DecodeError:
                pass
