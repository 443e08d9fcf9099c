"""One answer made of parts that come from different shards, each when it is committed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from ottla.coordinator.runtime.broker import Reply
from ottla.coordinator.runtime.shard_runtime import ShardRuntime
from ottla.wire.message import Message

P = TypeVar("P", bound=Message)
R = TypeVar("R", bound=Message)


def answer_together(
    defer: Callable[[], Reply],
    kind: type[P],
    answers: Sequence[tuple[ShardRuntime | None, P]],
    respond: Callable[[list[P]], R],
) -> R | None:
    """The response made of an answer for each group; None if it is sent later.

    Each answer comes with the shard it was read from, and waits until that has committed what
    it says; without a shard it holds as it is.
    """
    if all(runtime is None or runtime.is_settled for runtime, _ in answers):
        return respond([answer for _, answer in answers])
    gathering = Gathering(
        defer(),
        len(answers),
        lambda parts: respond([part for part in parts if isinstance(part, kind)]),
    )
    for position, (runtime, answer) in enumerate(answers):
        if runtime is None:
            gathering.add(position, answer)
        else:
            runtime.answer(gathering.part(position), answer)
    return None


class Gathering:
    """Waits for a number of parts, then sends the response they make, in their order."""

    def __init__(
        self, reply: Reply, count: int, respond: Callable[[Sequence[Message]], Message]
    ) -> None:
        self._reply = reply
        self._respond = respond
        self._missing = count
        self._parts: list[Message | None] = [None] * count

    def part(self, position: int) -> Reply:
        """Where to send one of the parts."""
        return _Part(self, position)

    def add(self, position: int, part: Message) -> None:
        """A part has come."""
        assert self._parts[position] is None, "a part is sent once"
        self._parts[position] = part
        self._missing -= 1
        if not self._missing:
            self._reply.send(self._respond([part for part in self._parts if part is not None]))


class _Part:
    __slots__ = ("_gathering", "_position")

    def __init__(self, gathering: Gathering, position: int) -> None:
        self._gathering = gathering
        self._position = position

    def send(self, response: Message) -> None:
        self._gathering.add(self._position, response)
