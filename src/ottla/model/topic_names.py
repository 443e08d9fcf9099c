"""Checks of topic names: valid characters, and collisions.

A topic name is part of a directory name and of metric names. In metric names '.' and '_' are
the same, so two topics whose names differ only in these would collide and are refused.
"""

from __future__ import annotations

from ottla.model.errors import ApiError, ErrorCode

MAX_NAME_LENGTH = 249
_MAX_SHOWN = 500
_ALLOWED = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


def reason_invalid(name: str) -> str | None:
    """Return what is wrong with a topic name, in Kafka's words, or None if it is valid."""
    if not name:
        return "the empty string is not allowed"
    if name in (".", ".."):
        return f"'{name}' is not allowed"
    if len(name) > MAX_NAME_LENGTH:
        shown = name if len(name) <= _MAX_SHOWN else name[:_MAX_SHOWN] + "..."
        return f"the length of '{shown}' is longer than the max allowed length {MAX_NAME_LENGTH}"
    if not _ALLOWED.issuperset(name):
        return (
            f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_'"
            " and '-'"
        )
    return None


def check_topic_name(name: str) -> None:
    """Raise INVALID_TOPIC_EXCEPTION if the name is invalid."""
    reason = reason_invalid(name)
    if reason is not None:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {reason}")


def may_collide(name: str) -> bool:
    """Return True if another name could collide with this one."""
    return "." in name or "_" in name


def collision_key(name: str) -> str:
    """Return a text that is the same for names that collide."""
    return name.replace(".", "_")
