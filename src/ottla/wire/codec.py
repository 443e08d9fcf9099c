"""Decoders and encoders of messages, one of each per class and version.

Each is a Python function that is generated from the message's FIELDS on first use (see
`decoding` and `encoding`) and then cached. A decoder raises only DecodeError, and checks a
length before it allocates memory for it. An encoder raises EncodeError if the version cannot
represent the message. A decoder ignores bytes after the body.

`step_decoder` and `step_encoder` are for messages that may be large: they yield now and then.
`part_encoder` is for messages with large byte fields: it does not copy them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

from ottla.model.steps import Steps
from ottla.ports import Buffer
from ottla.wire.decoding import MOST_ITEMS, generate_decoder
from ottla.wire.encoding import EncodeError, generate_encoder
from ottla.wire.layout import is_flexible
from ottla.wire.message import Message
from ottla.wire.primitives import DecodeError

__all__ = (
    "DecodeError",
    "EncodeError",
    "decoder",
    "encoder",
    "head_decoder",
    "part_encoder",
    "step_decoder",
    "step_encoder",
)

M = TypeVar("M", bound=Message)
_decoders: dict[tuple[type[Message], int], Callable[..., object]] = {}
_head_decoders: dict[tuple[type[Message], int, type[Message], str], Callable[..., object]] = {}
_encoders: dict[tuple[type[Message], int], Callable[..., bytes]] = {}
_part_encoders: dict[tuple[type[Message], int], Callable[..., object]] = {}
_step_decoders: dict[tuple[type[Message], int], Callable[..., object]] = {}
_step_encoders: dict[tuple[type[Message], int], Callable[..., object]] = {}


def decoder(message: type[M], version: int) -> Callable[[Buffer, int, int], tuple[M, int]]:
    """Return the function (buffer, start, end) -> (message, next position) for one version."""
    found = _decoders.get((message, version))
    if found is None:
        _check_version(message, version)
        found = generate_decoder(message, version, is_flexible(message, version))
        _decoders[message, version] = found
    return cast("Callable[[Buffer, int, int], tuple[M, int]]", found)


def head_decoder(
    message: type[Message], version: int, part: type[M], up_to: str
) -> Callable[[Buffer, int, int], tuple[M, int, int]]:
    """Return a decoder of the fields of `part` before the field `up_to`.

    It is for messages that are too large to be in memory as a whole. `part` is a struct of the
    message, or the message itself. The function is (buffer, start, end) -> (part, length of the
    field `up_to` or -1 if it is null, position after the length).
    """
    found = _head_decoders.get((message, version, part, up_to))
    if found is None:
        _check_version(message, version)
        found = generate_decoder(part, version, is_flexible(message, version), up_to)
        _head_decoders[message, version, part, up_to] = found
    return cast("Callable[[Buffer, int, int], tuple[M, int, int]]", found)


def encoder(message: type[M], version: int) -> Callable[[M], bytes]:
    """Return the function message -> bytes for one version."""
    found = _encoders.get((message, version))
    if found is None:
        _check_version(message, version)
        found = generate_encoder(message, version, is_flexible(message, version))
        _encoders[message, version] = found
    return cast("Callable[[M], bytes]", found)


def part_encoder(message: type[M], version: int) -> Callable[[M], list[Buffer]]:
    """Return the function message -> buffers, whose bytes in order are the message."""
    found = _part_encoders.get((message, version))
    if found is None:
        _check_version(message, version)
        found = generate_encoder(message, version, is_flexible(message, version), in_parts=True)
        _part_encoders[message, version] = found
    return cast("Callable[[M], list[Buffer]]", found)


def step_decoder(
    message: type[M], version: int, most_items: int = MOST_ITEMS
) -> Callable[[Buffer, int, int], Steps[M]]:
    """Return the generator function (buffer, start, end) that returns the message in the end.

    A message with more items is refused with DecodeError.
    """
    found = _step_decoders.get((message, version))
    if found is None:
        _check_version(message, version)
        found = generate_decoder(message, version, is_flexible(message, version), in_steps=True)
        _step_decoders[message, version] = found
    decode = cast("Callable[[Buffer, int, int, int], Steps[tuple[M, int]]]", found)

    def run(buffer: Buffer, start: int, end: int) -> Steps[M]:
        decoded, _ = yield from decode(buffer, start, end, most_items)
        return decoded

    return run


def step_encoder(message: type[M], version: int) -> Callable[[M], Steps[bytes]]:
    """Return the generator function message -> bytes, for responses that may be large."""
    found = _step_encoders.get((message, version))
    if found is None:
        _check_version(message, version)
        found = generate_encoder(message, version, is_flexible(message, version), in_steps=True)
        _step_encoders[message, version] = found
    return cast("Callable[[M], Steps[bytes]]", found)


def _check_version(message: type[Message], version: int) -> None:
    if not message.MIN_VERSION <= version <= message.MAX_VERSION:
        raise ValueError(f"{message.__name__} has no version {version}")
