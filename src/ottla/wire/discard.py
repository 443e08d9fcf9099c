"""Frees large messages and buffers in steps: a million objects, or 100 MB, take milliseconds."""

from __future__ import annotations

from typing import Any, Final

from ottla.model.steps import Steps
from ottla.wire.lazy_list import LazyList
from ottla.wire.message import Message

ITEMS_A_STEP: Final = 75

ONE_FRAME_BYTES: Final = 4 * 1024 * 1024
"""A larger buffer is not used again: who handles its frame in slices may keep it uncopied."""

_array_fields: dict[type[Message], tuple[str, ...]] = {}


def shrink(buffer: bytearray) -> bool:
    """Free about half of a large buffer; return False if there is nothing more to free.

    If somebody still looks at its bytes, they stay.
    """
    try:
        del buffer[len(buffer) // 2 - 1 :]  # Python would keep the memory of less than half
    except BufferError:
        return False
    return len(buffer) > ONE_FRAME_BYTES


def discard_in_steps(*containers: Any) -> Steps[None]:
    """Empty lists, dicts and messages, and all that are inside of them or of their tuples.

    Nobody may need them any more.
    """
    stack: list[Any] = []
    for container in containers:
        stack += _containers_in(container)
    del containers
    count = 0
    while stack:
        top = stack[-1]
        if not top:
            stack.pop()
        else:
            stack += _containers_in(top.popitem()[1] if isinstance(top, dict) else top.pop())
        count += 1
        if not count % ITEMS_A_STEP:
            yield


def _containers_in(item: Any) -> list[Any]:
    """Return the lists and dicts that an item is or has."""
    if isinstance(item, list | dict):
        return [] if isinstance(item, LazyList) else [item]
    if isinstance(item, tuple):  # not what is inside of its items: that may be an image in use
        return [inner for inner in item if isinstance(inner, list | dict)]
    if not isinstance(item, Message):
        return []
    names = _array_fields.get(type(item))
    if names is None:
        names = tuple(field.name for field in item.FIELDS if field.type == "array")
        _array_fields[type(item)] = names
    values = [getattr(item, name) for name in names] if names else ()
    return [value for value in values if value and isinstance(value, list)]
