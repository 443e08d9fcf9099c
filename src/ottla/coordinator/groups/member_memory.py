"""How much memory the members of all groups take.

Members say about themselves what they like: subscriptions, user data of their assignors. It is
kept as long as they are members. So it is counted and limited, for a classic group and for the
coordinator as a whole. Kafka has no such limit: there only `group.max.size` helps.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ottla.model.errors import ApiError, ErrorCode

MAX_BYTES: Final = 128 * 1024 * 1024
"""What the members of all groups may take together."""

BATCHES_PER_GROUP: Final = 4
"""What the members of a classic group may take, in batches.

The record of a generation has the metadata of one protocol and must fit into a batch. Members
have the metadata of a few protocols.
"""

LEAST_PER_GROUP: Final = 64 * 1024
"""What the members of a classic group may take however small batches are."""

_MEMBER_BYTES: Final = 500  # its objects and timers
_TEXT_BYTES: Final = 60  # a short text or bytes object, and its place in a list or dict


class MemberMemory:
    """The bytes that the members of all groups of a coordinator take, about."""

    __slots__ = ("held",)

    def __init__(self) -> None:
        self.held = 0

    def check(self, more: int) -> None:
        """Raise COORDINATOR_NOT_AVAILABLE if there is no room for so much more."""
        if more > 0 and self.held + more > MAX_BYTES:
            raise ApiError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                f"The members of all groups take {self.held} bytes, and may take {MAX_BYTES}.",
            )


def member_bytes(texts: Iterable[str | bytes | None]) -> int:
    """Return about how much memory a member with these texts takes."""
    return _MEMBER_BYTES + sum(_TEXT_BYTES + len(text) for text in texts if text)
