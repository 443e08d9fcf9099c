"""Error responses in place of answers whose records could not be written.

A command answers before its records are committed. If the write fails, each of its answers is
replaced by a response of the same class that has the error code and says who it is for.
"""

from __future__ import annotations

from typing import Final

from ottla.coordinator.groups.offset_commit import CommitResults
from ottla.model.errors import ErrorCode
from ottla.wire.message import Message
from ottla.wire.messages.offset_fetch import OffsetFetchResponseGroup

_IDENTITY: Final = ("group_id", "member_id")


def error_response(response: Message, code: ErrorCode) -> Message:
    """Return an error response to send instead of this one."""
    if isinstance(response, CommitResults):
        return response.refuse(code)
    refusal = type(response)()
    for name in _IDENTITY:
        if name in response.__slots__:
            setattr(refusal, name, getattr(response, name))
    if isinstance(response, OffsetFetchResponseGroup):
        code = offset_fetch_error(code)
    refusal.error_code = code  # type: ignore[attr-defined]
    return refusal


def offset_fetch_error(code: ErrorCode) -> ErrorCode:
    """Return a code for OffsetFetch that consumers from before Kafka 3.9 understand."""
    if code is ErrorCode.COORDINATOR_NOT_AVAILABLE:
        return ErrorCode.NOT_COORDINATOR
    return code
