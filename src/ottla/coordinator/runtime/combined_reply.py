"""One response made of parts that come from different shards, each when it is committed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from ottla.coordinator.runtime.reply import Reply
from ottla.coordinator.runtime.shard_runtime import ShardRuntime
from ottla.wire.message import Message

P = TypeVar("P", bound=Message)
R = TypeVar("R", bound=Message)


def answer_together(
    defer: Callable[[], Reply],
    kind: type[P],
    parts: Sequence[tuple[ShardRuntime[Any] | None, P]],
    respond: Callable[[list[P]], R],
) -> R | None:
    """Return the response made of all parts, or None if it is sent later.

    Each part comes with the runtime of the shard it was read from, and waits until all that
    this shard has written is committed. A part without a runtime does not wait.
    """
    runtimes = {runtime for runtime, _ in parts}
    if all(runtime is None or runtime.is_settled for runtime in runtimes):
        return respond([part for _, part in parts])
    combined = combined_reply(
        defer(),
        len(parts),
        lambda sent: respond([part for part in sent if isinstance(part, kind)]),
    )
    for position, (runtime, part) in enumerate(parts):
        if runtime is None:
            combined.add(position, part)
        else:
            runtime.answer(combined.part(position), part)
    return None


def combined_reply(
    reply: Reply, count: int, respond: Callable[[list[Message]], Message]
) -> ReplyParts:
    """Return the parts of a reply. When all are there, the response that they make is sent."""
    return ReplyParts(count, lambda parts: reply.send(respond(parts)))


class ReplyParts:
    """Waits for a number of parts, then calls `when_all` with them, in their order."""

    def __init__(self, count: int, when_all: Callable[[list[Message]], None]) -> None:
        self._when_all = when_all
        self._missing = count
        self._parts: list[Message | None] = [None] * count

    def part(self, position: int) -> Reply:
        """Return the reply to which one of the parts is sent."""
        return _Part(self, position)

    def add(self, position: int, part: Message) -> None:
        """Take one part. If it was the last that was missing, call `when_all`."""
        assert self._parts[position] is None, "a part is sent once"
        self._parts[position] = part
        self._missing -= 1
        if not self._missing:
            parts, self._parts = self._parts, []  # whoever gets them may free them in slices
            self._when_all([part for part in parts if part is not None])


class _Part:
    __slots__ = ("_parts", "_position")

    def __init__(self, parts: ReplyParts, position: int) -> None:
        self._parts = parts
        self._position = position

    def send(self, response: Message) -> None:
        self._parts.add(self._position, response)
