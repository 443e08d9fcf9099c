"""The manifest of a remote segment: a small JSON object that says what the segment has.

It is written after all other objects of the segment, so a segment whose manifest can be read is
whole. A manifest may come from a store that others can write to: `decode_manifest` takes nothing
for granted. Fields that it does not know are ignored; another version is refused.
"""

from __future__ import annotations

import json
from typing import Final

from ottla.log.state.leader_epochs import EpochEntry
from ottla.model.ids import uuid_from_text, uuid_to_text
from ottla.model.topic_names import reason_invalid
from ottla.model.value import Value
from ottla.tiered.layout import (
    DATA_KINDS,
    INDEX,
    LEADER_EPOCHS,
    LOG,
    MANIFEST,
    TIME_INDEX,
    object_key,
    partition_prefix,
)

VERSION: Final = 1
MAX_BYTES: Final = 4 * 1024 * 1024
"""No manifest is larger: it has some 700 bytes, and 20 more for each further leader epoch."""
MAX_LEADER_EPOCHS: Final = 50_000
MAX_REPLACED: Final = 10_000
REQUIRED_KINDS: Final = (LOG, INDEX, TIME_INDEX, LEADER_EPOCHS)

_INT32: Final = 2**31 - 1
_INT64: Final = 2**63 - 1
_UINT32: Final = 2**32 - 1
_SHOWN: Final = 80


class BadManifest(ValueError):
    """The content of an object is not a valid manifest; the text says why."""


class ObjectSummary(Value):
    """The size and the CRC-32C of one object."""

    size: int
    crc32c: int


class Manifest(Value):
    """What a remote segment has. Offsets are inclusive, as in Kafka's RemoteLogSegmentMetadata."""

    topic: str
    topic_id: bytes
    partition: int
    segment_id: bytes
    start_offset: int
    end_offset: int
    max_timestamp_ms: int
    broker_id: int
    event_timestamp_ms: int
    leader_epochs: tuple[EpochEntry, ...]
    objects: dict[str, ObjectSummary]
    replaces: tuple[bytes, ...] = ()

    @property
    def size(self) -> int:
        """The size of the log object."""
        return self.objects[LOG].size

    @property
    def total_size(self) -> int:
        """The size of all objects that the manifest describes."""
        return sum(summary.size for summary in self.objects.values())

    def key(self, kind: str = MANIFEST) -> str:
        """Return the key of one of the segment's objects."""
        prefix = partition_prefix(self.topic, self.topic_id, self.partition)
        return object_key(prefix, self.start_offset, self.segment_id, kind)


def encode_manifest(manifest: Manifest) -> bytes:
    """Return the content of a manifest; raise BadManifest if it could not be read again."""
    fields = {
        "version": VERSION,
        "topic": manifest.topic,
        "topic_id": uuid_to_text(manifest.topic_id),
        "partition": manifest.partition,
        "segment_id": uuid_to_text(manifest.segment_id),
        "start_offset": manifest.start_offset,
        "end_offset": manifest.end_offset,
        "max_timestamp_ms": manifest.max_timestamp_ms,
        "broker_id": manifest.broker_id,
        "event_timestamp_ms": manifest.event_timestamp_ms,
        "size": manifest.size,
        "leader_epochs": {str(e.epoch): e.start_offset for e in manifest.leader_epochs},
        "objects": {
            kind: {"size": summary.size, "crc32c": summary.crc32c}
            for kind, summary in manifest.objects.items()
        },
        "replaces": [uuid_to_text(each) for each in manifest.replaces],
    }
    content = json.dumps(fields, indent=1).encode()
    decode_manifest(content)
    return content


def decode_manifest(content: bytes) -> Manifest:
    """Return a manifest; raise BadManifest if the content is not a valid one."""
    fields = _load(content)
    version = _integer(fields, "version", 0, _INT32)
    if version != VERSION:
        raise BadManifest(f"version {version} of a manifest is not supported, only {VERSION}")
    start_offset = _integer(fields, "start_offset", 0, _INT64)
    end_offset = _integer(fields, "end_offset", start_offset, _INT64)
    objects = _objects(_mapping(fields, "objects", len(DATA_KINDS)))
    if _integer(fields, "size", 0, _INT32) != objects[LOG].size:
        raise BadManifest("size is not that of the log object")
    return Manifest(
        topic=_topic(fields),
        topic_id=_id(_text(fields, "topic_id")),
        partition=_integer(fields, "partition", 0, _INT32),
        segment_id=_id(_text(fields, "segment_id")),
        start_offset=start_offset,
        end_offset=end_offset,
        max_timestamp_ms=_integer(fields, "max_timestamp_ms", -1, _INT64),
        broker_id=_integer(fields, "broker_id", 0, _INT32),
        event_timestamp_ms=_integer(fields, "event_timestamp_ms", 0, _INT64),
        leader_epochs=_epochs(_mapping(fields, "leader_epochs", MAX_LEADER_EPOCHS), end_offset),
        objects=objects,
        replaces=_replaced(fields),
    )


def _load(content: bytes) -> dict[str, object]:
    if len(content) > MAX_BYTES:
        raise BadManifest(f"{len(content)} bytes are too many for a manifest")
    try:
        fields = json.loads(content, object_pairs_hook=_unique, parse_constant=_refuse)
    except BadManifest:
        raise
    except (ValueError, RecursionError) as error:
        raise BadManifest(f"not JSON: {error}") from None
    if not isinstance(fields, dict):
        raise BadManifest("not a JSON object")
    return fields


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise BadManifest("a name occurs twice in one object")
    return fields


def _refuse(name: str) -> None:
    raise BadManifest(f"{name} is not a number")


def _field(fields: dict[str, object], name: str) -> object:
    try:
        return fields[name]
    except KeyError:
        raise BadManifest(f"{name} is missing") from None


def _bad(name: str, value: object, expected: str) -> BadManifest:
    shown = repr(value)
    shown = shown if len(shown) <= _SHOWN else shown[:_SHOWN] + "..."
    return BadManifest(f"{name} is {shown}, not {expected}")


def _integer(fields: dict[str, object], name: str, least: int, most: int) -> int:
    value = _field(fields, name)
    if type(value) is not int or not least <= value <= most:
        raise _bad(name, value, f"an integer from {least} to {most}")
    return value


def _text(fields: dict[str, object], name: str) -> str:
    value = _field(fields, name)
    if not isinstance(value, str):
        raise _bad(name, value, "a text")
    return value


def _mapping(fields: dict[str, object], name: str, most: int) -> dict[str, object]:
    value = _field(fields, name)
    if not isinstance(value, dict) or not 0 < len(value) <= most:
        raise _bad(name, value, f"an object with 1 to {most} fields")
    return value


def _topic(fields: dict[str, object]) -> str:
    topic = _text(fields, "topic")
    if reason_invalid(topic) is not None:
        raise _bad("topic", topic, "a topic's name")
    return topic


def _id(text: str) -> bytes:
    try:
        found = uuid_from_text(text)
    except ValueError:
        found = b""
    if not found or uuid_to_text(found) != text:
        raise _bad("an id", text, "one in Kafka's notation")
    return found


def _epochs(epochs: dict[str, object], end_offset: int) -> tuple[EpochEntry, ...]:
    found: list[EpochEntry] = []
    for text in epochs:
        if not (text.isascii() and text.isdigit()) or len(text) > 10 or int(text) > _INT32:
            raise _bad("a leader epoch", text, f"an integer from 0 to {_INT32}")
        entry = EpochEntry(int(text), _integer(epochs, text, 0, end_offset))
        if found and not (found[-1].epoch < entry.epoch and found[-1].start_offset < entry[1]):
            raise BadManifest("leader_epochs do not rise")
        found.append(entry)
    return tuple(found)


def _objects(objects: dict[str, object]) -> dict[str, ObjectSummary]:
    found = {}
    for kind in objects:
        if kind not in DATA_KINDS:
            raise _bad("a kind of object", kind, f"one of {', '.join(DATA_KINDS)}")
        summary = _mapping(objects, kind, 10)
        size, crc = _integer(summary, "size", 0, _INT32), _integer(summary, "crc32c", 0, _UINT32)
        found[kind] = ObjectSummary(size, crc)
    for kind in REQUIRED_KINDS:
        if kind not in found:
            raise BadManifest(f"objects has no {kind}")
    return found


def _replaced(fields: dict[str, object]) -> tuple[bytes, ...]:
    value = _field(fields, "replaces")
    if not isinstance(value, list) or len(value) > MAX_REPLACED:
        raise _bad("replaces", value, f"a list of at most {MAX_REPLACED} ids")
    if not all(isinstance(each, str) for each in value):
        raise _bad("replaces", value, "a list of ids")
    return tuple(_id(each) for each in value)
