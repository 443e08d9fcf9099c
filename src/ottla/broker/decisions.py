"""Carrying out what the controller decided."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.broker.node import Node
from ottla.model.errors import ApiError, ErrorCode
from ottla.wire.message import Message


def carry_out(node: Node, records: Sequence[Message], *, validate_only: bool) -> ApiError | None:
    """Write the records of a decision; the error that then holds for all it would have done."""
    if validate_only:
        return None
    try:
        node.controller.write(records)
    except ApiError as error:
        return error
    return None


def error_fields(error: ApiError | None) -> tuple[ErrorCode, str | None]:
    """Code and message for the result of one thing that was asked."""
    return (ErrorCode.NONE, None) if error is None else (error.code, error.message)
