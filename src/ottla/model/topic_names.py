"""Which topic names are allowed, and which two would collide.

A name becomes a directory and part of metric names, in which '.' and '_' look the same:
so two topics whose names differ only in those are refused.
"""

from __future__ import annotations

from ottla.model.errors import ApiError, ErrorCode

MAX_NAME_LENGTH = 249
_ALLOWED = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


def reason_invalid(name: str) -> str | None:
    """What is wrong with a topic name, or None."""
    if not name:
        return "it is empty"
    if name in (".", ".."):
        return f"{name!r} is a name of directories"
    if len(name) > MAX_NAME_LENGTH:
        return f"it has {len(name)} characters, and {MAX_NAME_LENGTH} are the most allowed"
    if not _ALLOWED.issuperset(name):
        return "only ASCII letters, digits, '.', '_' and '-' are allowed"
    return None


def check_topic_name(name: str) -> None:
    """Refuse a name no topic may have with INVALID_TOPIC_EXCEPTION."""
    reason = reason_invalid(name)
    if reason is not None:
        shown = name if len(name) <= MAX_NAME_LENGTH else name[:32] + "..."
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Invalid topic name {shown!r}: {reason}")


def may_collide(name: str) -> bool:
    """Whether another name could collide with this one."""
    return "." in name or "_" in name


def collision_key(name: str) -> str:
    """What two colliding names have in common."""
    return name.replace(".", "_")
