"""A decision of the controller: records to write, and a result for each thing asked.

The functions that decide are pure: they read an image and change nothing. A decision takes
effect when its records are written to the metadata log and applied; a request that only
validates drops them. They decide in steps, because a request may ask for thousands of things.
"""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

from ottla.model.errors import ApiError, ErrorCode
from ottla.wire.message import Message

R = TypeVar("R")
MAX_PER_REQUEST = 10_000
MAX_VALUE_BYTES = 0x7FFF


class Decision(NamedTuple, Generic[R]):
    """The records to write, and one result for each thing that was asked."""

    records: list[Message]
    results: list[R]


def plain(error: ApiError) -> ApiError:
    """Return a copy of an error without its traceback, to keep in a result."""
    return ApiError(error.code, error.message)


def check_number(number: int, what: str) -> None:
    """Raise POLICY_VIOLATION above the most that one request may do."""
    if number > MAX_PER_REQUEST:
        raise ApiError(
            ErrorCode.POLICY_VIOLATION,
            f"One request may have {MAX_PER_REQUEST} {what}, not {number}: split it up",
        )


def check_value(value: str) -> None:
    """Raise INVALID_CONFIG for a longer value of a setting than Kafka takes.

    Compact strings have room for more, old versions of DescribeConfigs have not.
    """
    if len(value) > MAX_VALUE_BYTES // 4 and len(value.encode()) > MAX_VALUE_BYTES:
        raise ApiError(
            ErrorCode.INVALID_CONFIG,
            "The configuration value cannot be added because it exceeds the maximum value size of"
            f" {MAX_VALUE_BYTES} bytes.",
        )
