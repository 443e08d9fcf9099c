"""The base of message classes: slotted classes whose FIELDS describe all versions.

One class represents a struct in all its versions, as in Kafka's clients. If a version does not
have a field, the field keeps its default on decode and is left out on encode. The classes in
`ottla.wire.messages` are generated. Others (metadata records) are written by hand in the same
form and use the same codec.
"""

from __future__ import annotations

from typing import ClassVar, TypeVar

T = TypeVar("T")
Versions = tuple[int, int]
Items = list[T] | tuple[T, ...]


def as_list(items: Items[T]) -> list[T]:
    """Return the given list itself, or a new list for a tuple."""
    return items if isinstance(items, list) else list(items)


class Field:
    """One field: its type, and its first and last version (inclusive).

    `type` is int8, int16, uint16, int32, uint32, int64, float64, bool, uuid, string, bytes,
    records, array or struct. `of` is the element type of an array (a primitive's name or a
    Message class) or the class of a struct. A field with a `tag` is tagged in all its versions.
    """

    __slots__ = ("name", "nullable", "of", "tag", "type", "versions")

    def __init__(
        self,
        name: str,
        type: str,
        versions: Versions,
        *,
        of: str | type[Message] | None = None,
        nullable: Versions | None = None,
        tag: int | None = None,
    ) -> None:
        self.name = name
        self.type = type
        self.versions = versions
        self.of = of
        self.nullable = nullable
        self.tag = tag

    def exists(self, version: int) -> bool:
        """Return True if this version has the field."""
        return self.versions[0] <= version <= self.versions[1]

    def is_nullable(self, version: int) -> bool:
        """Return True if the field may be null in this version."""
        return self.nullable is not None and self.nullable[0] <= version <= self.nullable[1]


class Message:
    """The base of all message structs. Two are equal if they have the same class and fields."""

    __slots__: ClassVar[tuple[str, ...]] = ()
    FIELDS: ClassVar[tuple[Field, ...]] = ()
    # Only whole messages have versions; structs inside of messages do not set these.
    API_KEY: ClassVar[int] = -1
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = -1
    FIRST_FLEXIBLE_VERSION: ClassVar[int | None] = None

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, f.name) == getattr(other, f.name) for f in self.FIELDS)

    __hash__ = None  # type: ignore[assignment]  # messages are mutable

    def __repr__(self) -> str:
        """Return source code that creates the message, without fields that have their default."""
        plain = type(self)()
        values = ((f.name, getattr(self, f.name)) for f in self.FIELDS)
        shown = (f"{name}={value!r}" for name, value in values if value != getattr(plain, name))
        return f"{type(self).__name__}({', '.join(shown)})"
