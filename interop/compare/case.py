"""One request of the comparison, and what earlier answers of a system have told.

The cases are sent to each system in the same order. A request that needs something of an earlier
answer (a topic id, a member id) is a function of `Seen`; all others are messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, TypeAlias

from ottla.wire.apis import API_INFO
from ottla.wire.message import Message


class Raw(NamedTuple):
    """A request whose bytes no encoder would write."""

    api_key: int
    body: bytes


class Seen:
    """What the answers of one system have told: topic ids by name, and values by any name."""

    def __init__(self) -> None:
        self.topic_ids: dict[str, bytes] = {}
        self.values: dict[str, str | int] = {}

    def text(self, name: str) -> str:
        return str(self.values.get(name, ""))

    def number(self, name: str) -> int:
        return int(self.values.get(name, -1))

    def topic_id(self, name: str) -> bytes:
        return self.topic_ids[name]


Request: TypeAlias = Message | Raw
Ask: TypeAlias = Request | Callable[[Seen], Request]
Remember: TypeAlias = Callable[[Seen, Message], None]


class Case(NamedTuple):
    """A request in one version. `changes` says that the metadata may be different after it.

    With `until`, it is sent again until the answer is the one to compare.
    """

    name: str
    version: int
    ask: Ask
    api_key: int
    remember: Remember | None = None
    changes: bool = False
    answered: bool = True
    until: Callable[[Message], bool] | None = None

    @property
    def api(self) -> str:
        return API_INFO[self.api_key].name

    @property
    def title(self) -> str:
        return f"{self.api} v{self.version}: {self.name}"


def case(
    name: str,
    version: int,
    request: Request,
    *,
    remember: Remember | None = None,
    changes: bool = False,
    answered: bool = True,
) -> Case:
    """Return a case whose request is known beforehand."""
    key = request.api_key if isinstance(request, Raw) else request.API_KEY
    return Case(name, version, request, key, remember, changes, answered)


def in_versions(
    name: str, versions: Iterable[int], request: Message, *, changes: bool = False
) -> Iterator[Case]:
    """Yield the same request in several versions."""
    return (case(name, version, request, changes=changes) for version in versions)


def asking(
    name: str,
    version: int,
    of: type[Message],
    ask: Callable[[Seen], Request],
    *,
    remember: Remember | None = None,
    changes: bool = False,
) -> Case:
    """Return a case whose request depends on earlier answers."""
    return Case(name, version, ask, of.API_KEY, remember, changes)
