"""Checks of topic names: valid characters, and collisions.

A topic name is part of a directory name and of metric names. In metric names '.' and '_' are
the same, so two topics whose names differ only in these would collide and are refused.
"""

from __future__ import annotations

from ottla.model.errors import ApiError, ErrorCode

MAX_NAME_LENGTH = 249
_ALLOWED = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


def reason_invalid(name: str) -> str | None:
    """Return what is wrong with a topic name, or None if it is valid."""
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
    """Raise INVALID_TOPIC_EXCEPTION if the name is invalid."""
    reason = reason_invalid(name)
    if reason is not None:
        shown = name if len(name) <= MAX_NAME_LENGTH else name[:32] + "..."
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Invalid topic name {shown!r}: {reason}")


def may_collide(name: str) -> bool:
    """Return True if another name could collide with this one."""
    return "." in name or "_" in name


def collision_key(name: str) -> str:
    """Return a text that is the same for names that collide."""
    return name.replace(".", "_")
