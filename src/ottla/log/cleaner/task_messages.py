"""What the cleaner sends to its helper process, and what it gets back.

A message has named numbers and texts, and parts: byte strings such as batches and index entries.
It is a length, a JSON object that also has the lengths of the parts, and the parts.
"""

from __future__ import annotations

from json import dumps, loads
from struct import Struct
from typing import Any, Final

from ottla.ports import Buffer

_LENGTH: Final = Struct(">I")
_PARTS: Final = "parts"


def pack(fields: dict[str, Any], *parts: Buffer) -> bytes:
    """Return a message with these fields and parts."""
    head = dumps({**fields, _PARTS: [len(part) for part in parts]}).encode()
    return b"".join((_LENGTH.pack(len(head)), head, *parts))


def unpack(message: Buffer) -> tuple[dict[str, Any], list[memoryview]]:
    """Return the fields and the parts of a message; the parts are not copied."""
    view = memoryview(message)
    (length,) = _LENGTH.unpack_from(view)
    position = _LENGTH.size + length
    fields: dict[str, Any] = loads(bytes(view[_LENGTH.size : position]))
    parts = []
    for size in fields.pop(_PARTS):
        parts.append(view[position : position + size])
        position += size
    return fields, parts
