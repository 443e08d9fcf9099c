"""Answers that turn out not to hold: the same kind of response, saying so.

A command answers before its records are committed. If they cannot be, its answer is replaced
by a refusal that has the error code wherever the response has room for one.
"""

from __future__ import annotations

from typing import Final

from ottla.coordinator.groups.offset_commit import CommitResults
from ottla.model.errors import ErrorCode
from ottla.wire.message import Message
from ottla.wire.messages.offset_fetch import OffsetFetchResponseGroup

_IDENTITY: Final = ("group_id", "member_id")


def refuse(response: Message, code: ErrorCode) -> Message:
    """A response like this one, but for the error."""
    if isinstance(response, CommitResults):
        return response.refuse(code)
    refusal = type(response)()
    for name in _IDENTITY:
        if name in response.__slots__:
            setattr(refusal, name, getattr(response, name))
    if isinstance(response, OffsetFetchResponseGroup):
        code = for_offset_fetch(code)
    refusal.error_code = code  # type: ignore[attr-defined]
    return refusal


def for_offset_fetch(code: ErrorCode) -> ErrorCode:
    """The error as consumers before Kafka 3.9 understand it: try again, elsewhere if need be."""
    if code is ErrorCode.COORDINATOR_NOT_AVAILABLE:
        return ErrorCode.NOT_COORDINATOR
    return code
