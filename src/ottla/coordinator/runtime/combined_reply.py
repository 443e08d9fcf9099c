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
    combined = CombinedReply(
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


class CombinedReply:
    """Waits for a number of parts, then sends the response they make, in their order."""

    def __init__(
        self, reply: Reply, count: int, respond: Callable[[Sequence[Message]], Message]
    ) -> None:
        self._reply = reply
        self._respond = respond
        self._missing = count
        self._parts: list[Message | None] = [None] * count

    def part(self, position: int) -> Reply:
        """Return the reply to which one of the parts is sent."""
        return _Part(self, position)

    def add(self, position: int, part: Message) -> None:
        """Take one part; send the response if it was the last that was missing."""
        assert self._parts[position] is None, "a part is sent once"
        self._parts[position] = part
        self._missing -= 1
        if not self._missing:
            self._reply.send(self._respond([part for part in self._parts if part is not None]))


class _Part:
    __slots__ = ("_combined", "_position")

    def __init__(self, combined: CombinedReply, position: int) -> None:
        self._combined = combined
        self._position = position

    def send(self, response: Message) -> None:
        self._combined.add(self._position, response)
