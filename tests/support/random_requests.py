"""Requests made from their schemas: random ones that are well-formed, and ones with long arrays.

Both walk the fields of a message, so that a new API or field is covered without a line here.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any, Final

from ottla.broker.handlers import SERVED
from ottla.wire.apis import request_class
from ottla.wire.codec import encoder
from ottla.wire.header import request_header
from ottla.wire.message import Field, Message
from ottla.wire.messages.default_principal_data import DefaultPrincipalData
from ottla.wire.messages.envelope import EnvelopeRequest

_NUMBERS: Final = (0, 0, 0, 1, 1, 2, 3, 4, -1, 5, 100, 2**15 - 1, 2**31 - 1, -(2**31))
_EPOCHS: Final = (0, 1, 1, 2, 3)
_SHORT_WAITS: Final = frozenset({"max_wait", "timeout"})
_INDEXES: Final = frozenset({"partition_index", "partition", "index", "partition_id"})
_BITS: Final = {"int8": 8, "int16": 16, "uint16": 16, "int32": 32, "uint32": 32, "int64": 64}


class RandomRequests:
    """Makes requests by chance. `known` has values for fields by name, which are used mostly."""

    def __init__(self, chance: Random, known: Mapping[str, tuple[Any, ...]]) -> None:
        self._chance = chance
        self._known = known
        self._ids = (bytes(16), bytes(15) + b"\x01", chance.randbytes(16))
        self._strings = ("t", "", "x" * 300, "CONTROLLER", "é", "__cluster_metadata", "2")
        self._bytes = (b"", b"abc", chance.randbytes(70))

    def frame(self, key: int, version: int) -> bytes:
        """Return a whole request, without its size."""
        request: Any = self._struct(request_class(key), version)
        if isinstance(request, EnvelopeRequest):
            self._fill(request)
        client_id = self._chance.choice(("c", None, ""))
        header = request_header(key, version, self._chance.randrange(1000), client_id)
        return header + encoder(type(request), version)(request)

    def _fill(self, envelope: EnvelopeRequest) -> None:
        """Put a request into an Envelope, with a sender that may be damaged."""
        choice = self._chance.choice
        key = choice([key for key, served in SERVED.items() if served.is_forwarded])
        version = self._chance.randint(SERVED[key].oldest, SERVED[key].newest)
        principal = b"\0\0" + encoder(DefaultPrincipalData, 0)(
            DefaultPrincipalData(type_="User", name="x")
        )
        inner = self.frame(key, version)
        envelope.request_data = choice((inner, inner, inner, inner[:-1], inner[:9], b""))
        envelope.request_principal = choice(
            (None, b"", b"\0", principal, principal[:4], principal[:-1], b"\0\0\xff\xff", b"\x7f\0")
        )
        envelope.client_host_address = choice((b"\x7f\0\0\1", b"", bytes(16), b"abc"))

    def _struct(self, kind: type[Message], version: int) -> Message:
        made = kind()
        for field in kind.FIELDS:
            if field.exists(version) and (field.tag is None or self._chance.random() < 0.7):
                setattr(made, field.name, self._value(field, version))
        return made

    def _value(self, field: Field, version: int) -> Any:
        chance = self._chance
        if field.is_nullable(version) and chance.random() < 0.1:
            return None
        if field.name in _SHORT_WAITS:
            return chance.choice((0, 1, 10))
        if field.name in self._known and chance.random() < 0.8:
            return chance.choice(self._known[field.name])
        if field.type == "array":
            assert field.of is not None
            return [self._one(field.of, version) for _ in range(chance.choice((0, 1, 1, 1, 2, 3)))]
        if field.name.endswith("epoch") and chance.random() < 0.7:
            return chance.choice(_EPOCHS)
        return self._one(field.of or field.type, version)

    def _one(self, kind: str | type[Message], version: int) -> Any:
        chance = self._chance
        if not isinstance(kind, str):
            return self._struct(kind, version)
        if kind in _BITS:
            bits = _BITS[kind] - (not kind.startswith("u"))
            lowest = 0 if kind.startswith("u") else -(2**bits)
            return max(lowest, min(2**bits - 1, chance.choice(_NUMBERS)))
        match kind:
            case "bool":
                return chance.random() < 0.5
            case "float64":
                return chance.choice((0.0, 1.0, float("nan")))
            case "uuid":
                return chance.choice(self._ids)
            case "string":
                return chance.choice(self._strings)
            case _:
                return chance.choice(self._bytes)


def with_long_arrays(
    kind: type[Message],
    version: int,
    count: int,
    known: Mapping[str, Any],
    *,
    depth: int,
    distinct: bool = False,
) -> Message:
    """Return a message whose arrays at this depth repeat one item; other arrays have one.

    With `distinct`, the items differ in their names, ids or indexes, and have no arrays.
    """
    made = kind()
    for field in kind.FIELDS:
        if not field.exists(version):
            continue
        if field.type == "array":
            assert field.of is not None
            item = _item(field.of, version, count, known, depth=depth - 1, distinct=distinct)
            items = [item] * (count if depth == 0 else 1)
            if distinct and depth <= 0:
                items = [_varied(item, number) for number in range(count)] if depth == 0 else []
            setattr(made, field.name, items)
        elif field.type == "struct":
            assert isinstance(field.of, type)
            nested = with_long_arrays(
                field.of, version, count, known, depth=depth - 1, distinct=distinct
            )
            setattr(made, field.name, nested)
        elif field.name in known:
            setattr(made, field.name, known[field.name])
    return made


def _item(
    kind: str | type[Message],
    version: int,
    count: int,
    known: Mapping[str, Any],
    *,
    depth: int,
    distinct: bool,
) -> Any:
    if isinstance(kind, type):
        return with_long_arrays(kind, version, count, known, depth=depth, distinct=distinct)
    return {"string": "t", "uuid": bytes(16), "bool": False}.get(kind, 1)


def _varied(item: Any, number: int) -> Any:
    """Return a copy of an item with another name, id or index."""
    if isinstance(item, Message):
        made = type(item)()
        for field in item.FIELDS:
            value = getattr(item, field.name)
            setattr(made, field.name, _varied(value, number) if _names(field) else value)
        return made
    if isinstance(item, bytes):
        return number.to_bytes(16)
    if item is None:
        return None
    return f"{item}{number}" if isinstance(item, str) else number


def _names(field: Field) -> bool:
    """Return True if a field of an item says which one it is."""
    return field.type in ("string", "uuid") or field.name in _INDEXES


def depth_of(kind: type[Message]) -> int:
    """Return how deep the arrays of a message are nested."""
    inner = (depth_of(f.of) + 1 for f in kind.FIELDS if isinstance(f.of, type))
    plain = (1 for f in kind.FIELDS if f.type == "array")
    return max([0, *inner, *plain])
