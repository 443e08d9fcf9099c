"""One answer made of parts that come from different shards, each when it is committed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ottla.coordinator.surroundings import Reply
from ottla.wire.message import Message


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
