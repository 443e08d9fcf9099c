"""The keys of the objects of the remote tier.

    {topic}-{topic id}/{partition}/{start offset, 20 digits}-{segment id}.{kind}
    {topic}-{topic id}/{partition}/log-start-offset

Ids are in Kafka's text form. Keys are relative to the URL of the store, which may have a prefix
of its own. A segment's objects have the kinds of `KINDS`; its manifest is written last and
deleted first, so a segment is there if its manifest is.

A directory name has at most 255 bytes in most file systems, and a topic's name up to 249. Of a
longer one only the first 232 characters are in the key; the manifest has all of it.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ottla.model.ids import uuid_from_text, uuid_to_text

LOG: Final = "log"
INDEX: Final = "index"
TIME_INDEX: Final = "timeindex"
SNAPSHOT: Final = "snapshot"
TXN_INDEX: Final = "txnindex"
LEADER_EPOCHS: Final = "leader-epoch-checkpoint"
MANIFEST: Final = "manifest"

DATA_KINDS: Final = (LOG, INDEX, TIME_INDEX, SNAPSHOT, TXN_INDEX, LEADER_EPOCHS)
"""What a manifest describes."""
KINDS: Final = (*DATA_KINDS, MANIFEST)
LOG_START_OFFSET: Final = "log-start-offset"

MAX_TOPIC_IN_KEY: Final = 232
_ID_LENGTH: Final = 22
_OFFSET_DIGITS: Final = 20
_MAX_OFFSET: Final = 2**63 - 1
_MAX_PARTITION: Final = 2**31 - 1


class TopicDirectory(NamedTuple):
    """The first part of a key: the start of a topic's name, and its id."""

    topic_start: str
    topic_id: bytes


class SegmentObject(NamedTuple):
    """The last part of a key: one object of a segment."""

    start_offset: int
    segment_id: bytes
    kind: str

    def __str__(self) -> str:
        return f"{self.start_offset:020d}-{uuid_to_text(self.segment_id)}.{self.kind}"


def topic_prefix(topic: str, topic_id: bytes) -> str:
    """Return what the keys of a topic begin with."""
    return f"{topic[:MAX_TOPIC_IN_KEY]}-{uuid_to_text(topic_id)}/"


def partition_prefix(topic: str, topic_id: bytes, partition: int) -> str:
    """Return what the keys of a partition begin with."""
    return f"{topic_prefix(topic, topic_id)}{partition}/"


def object_key(prefix: str, start_offset: int, segment_id: bytes, kind: str) -> str:
    """Return the key of an object of a segment; `prefix` is that of its partition."""
    return prefix + str(SegmentObject(start_offset, segment_id, kind))


def log_start_key(prefix: str) -> str:
    """Return the key of a partition's log start offset."""
    return prefix + LOG_START_OFFSET


def parse_topic_directory(name: str) -> TopicDirectory | None:
    """Return what the first part of a key says, or None if it is not one of a topic."""
    topic, dash, text = name[: -_ID_LENGTH - 1], name[-_ID_LENGTH - 1 : -_ID_LENGTH], name[-22:]
    topic_id = _parse_id(text)
    if dash != "-" or not topic or "/" in topic or topic_id is None:
        return None
    return TopicDirectory(topic, topic_id)


def parse_partition(text: str) -> int | None:
    """Return the number of a partition as it stands in a key, or None."""
    number = _parse_number(text, _MAX_PARTITION)
    return number if str(number) == text else None


def parse_object(name: str) -> SegmentObject | None:
    """Return what the last part of a key says, or None if it is not an object of a segment."""
    stem, _, kind = name.partition(".")
    digits, dash, text = stem[:_OFFSET_DIGITS], stem[_OFFSET_DIGITS : _OFFSET_DIGITS + 1], stem[21:]
    offset = _parse_number(digits, _MAX_OFFSET)
    segment_id = _parse_id(text)
    if kind not in KINDS or dash != "-" or len(digits) != _OFFSET_DIGITS:
        return None
    if offset is None or segment_id is None:
        return None
    return SegmentObject(offset, segment_id, kind)


def encode_log_start(offset: int) -> bytes:
    """Return the content of the object with a partition's log start offset."""
    return f"{offset}\n".encode()


def decode_log_start(content: bytes) -> int:
    """Return a partition's log start offset; raise ValueError if the object does not have one."""
    text = content[:32].decode("ascii", "replace").strip()
    offset = _parse_number(text, _MAX_OFFSET)
    if offset is None or len(content) > 32:
        raise ValueError(f"{text!r} is not an offset")
    return offset


def _parse_number(text: str, most: int) -> int | None:
    if not (text.isascii() and text.isdigit()) or len(text) > _OFFSET_DIGITS:
        return None
    number = int(text)
    return number if number <= most else None


def _parse_id(text: str) -> bytes | None:
    if len(text) != _ID_LENGTH:
        return None
    try:
        found = uuid_from_text(text)
    except ValueError:
        return None
    return found if uuid_to_text(found) == text else None
