"""Frees large messages in steps: to free a million objects takes as long as other work."""

from __future__ import annotations

from typing import Any, Final

from ottla.model.steps import Steps
from ottla.wire.lazy_list import LazyList
from ottla.wire.message import Message

ITEMS_A_STEP: Final = 50


def discard_in_steps(*containers: Any) -> Steps[None]:
    """Empty lists, dicts and messages, and those inside of them, also in tuples.

    Nobody may need them any more.
    """
    stack: list[Any] = [*containers]
    del containers
    count = 0
    while stack:
        top = stack[-1]
        if isinstance(top, Message):
            stack.pop()
            stack += _lists_of(top)
        elif not top or isinstance(top, LazyList):
            stack.pop()
        else:
            item = top.popitem()[1] if isinstance(top, dict) else top.pop()
            if isinstance(item, list | dict | Message):
                stack.append(item)
            elif isinstance(item, tuple):
                stack += [inner for inner in item if isinstance(inner, list | dict | Message)]
            del item
        count += 1
        if not count % ITEMS_A_STEP:
            yield


def _lists_of(message: Message) -> list[list[Any]]:
    values = (getattr(message, field.name) for field in message.FIELDS if field.type == "array")
    return [value for value in values if value and isinstance(value, list)]
