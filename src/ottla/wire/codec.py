"""Decoders and encoders of messages, one pair per class and version.

Each is a Python function generated from the message's FIELDS when first asked for (see
`decoding` and `encoding`), then kept. Decoding never raises anything but DecodeError and never
allocates for a length it has not checked; encoding raises EncodeError for a message the
version cannot carry. Bytes after the body are the caller's business.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

from ottla.ports import Buffer
from ottla.wire.decoding import generate_decoder
from ottla.wire.encoding import EncodeError, generate_encoder
from ottla.wire.layout import is_flexible
from ottla.wire.message import Message
from ottla.wire.primitives import DecodeError

__all__ = ("DecodeError", "EncodeError", "decoder", "encoder")

M = TypeVar("M", bound=Message)
_decoders: dict[tuple[type[Message], int, bool], Callable[..., object]] = {}
_encoders: dict[tuple[type[Message], int], Callable[..., bytes]] = {}


def decoder(
    message: type[M], version: int, *, in_place: bool = False
) -> Callable[[Buffer, int, int], tuple[M, int]]:
    """The function (buffer, start, end) -> (message, next position) for one version.

    With `in_place`, fields of type records are memoryviews of the buffer, not copies of it.
    """
    found = _decoders.get((message, version, in_place))
    if found is None:
        _check_version(message, version)
        found = generate_decoder(message, version, is_flexible(message, version), in_place)
        _decoders[message, version, in_place] = found
    return cast("Callable[[Buffer, int, int], tuple[M, int]]", found)


def encoder(message: type[M], version: int) -> Callable[[M], bytes]:
    """The function message -> bytes for one version."""
    found = _encoders.get((message, version))
    if found is None:
        _check_version(message, version)
        found = generate_encoder(message, version, is_flexible(message, version))
        _encoders[message, version] = found
    return cast("Callable[[M], bytes]", found)


def _check_version(message: type[Message], version: int) -> None:
    if not message.MIN_VERSION <= version <= message.MAX_VERSION:
        raise ValueError(f"{message.__name__} has no version {version}")
