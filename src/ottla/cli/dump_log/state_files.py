"""Small files: producer snapshots, checkpoints, properties and JSON state."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from struct import Struct
from typing import Final

from ottla.cli.dump_log.findings import Damage, Fields, Finding, Row, Summary
from ottla.cli.dump_log.source import Source
from ottla.cli.output import JsonValue
from ottla.config.properties import parse_properties
from ottla.model.ids import uuid_from_text
from ottla.records.checksum import crc32c

_MAX_BYTES: Final = 256 * 1024 * 1024
_SNAPSHOT_HEADER: Final = Struct(">hIi")
_SNAPSHOT_CRC_START: Final = 6
_PRODUCER: Final = Struct(">qhiqiqiq")
_UUID_KEYS: Final = ("topic_id", "directory.id")


def snapshot_findings(source: Source) -> Iterator[Finding]:
    """Yield the producers of a `.snapshot` file (version 1)."""
    content = _whole(source)
    if len(content) < _SNAPSHOT_HEADER.size:
        yield Damage(0, f"{len(content)} bytes are too few for a snapshot", len(content))
        return
    version, crc, count = _SNAPSHOT_HEADER.unpack_from(content)
    if version != 1:
        yield Damage(0, f"version {version} is unknown", len(content))
        return
    computed = crc32c(memoryview(content)[_SNAPSHOT_CRC_START:])
    if computed != crc:
        yield Damage(
            2, f"the stored CRC is {crc}, the computed CRC is {computed}", len(content) - 2
        )
    present = (len(content) - _SNAPSHOT_HEADER.size) // _PRODUCER.size
    for number in range(min(max(count, 0), present)):
        yield _producer_row(content, _SNAPSHOT_HEADER.size + number * _PRODUCER.size)
    end = _SNAPSHOT_HEADER.size + count * _PRODUCER.size
    if end != len(content):
        at = min(max(end, _SNAPSHOT_HEADER.size), len(content))
        yield Damage(at, f"{count} entries take {end} bytes", len(content) - at)
    yield Summary({"entries": count, "bytes": source.size})


def leader_epoch_findings(source: Source) -> Iterator[Finding]:
    """Return the epochs of a `leader-epoch-checkpoint`. Epochs and start offsets must increase."""
    latest = (-1, -1)

    def check(epoch: int, start: int) -> str | None:
        nonlocal latest
        before, latest = latest, (epoch, start)
        if epoch > before[0] and start >= max(before[1], 0):
            return None
        return f"epoch {epoch} from {start} after epoch {before[0]} from {before[1]}"

    return _checkpoint_findings(source, ("epoch", "startOffset"), check)


def offset_checkpoint_findings(source: Source) -> Iterator[Finding]:
    """Return the offsets in an offset checkpoint of a log directory."""

    def check(partition: int, offset: int) -> str | None:
        return None if partition >= 0 and offset >= 0 else "a negative partition or offset"

    return _checkpoint_findings(source, ("topic", "partition", "offset"), check)


def properties_findings(source: Source) -> Iterator[Finding]:
    """Yield the lines of `meta.properties` or `partition.metadata`."""
    try:
        properties = parse_properties(_whole(source).decode())
    except ValueError as error:
        yield Damage(0, str(error), source.size)
        return
    for key, value in properties.items():
        yield Row("property", {"key": key, "value": value})
    if "version" not in properties:
        yield Damage(0, "the version is missing", source.size)
    for key in _UUID_KEYS:
        try:
            if key in properties:
                uuid_from_text(properties[key])
        except ValueError as error:
            yield Damage(0, f"{key}: {error}", source.size)
    yield Summary({"properties": len(properties), "bytes": source.size})


def json_findings(source: Source) -> Iterator[Finding]:
    """Yield the members of a JSON file such as `quorum-state`. An empty file has none."""
    content = _whole(source)
    try:
        members: JsonValue = json.loads(content) if content else {}
    except ValueError as error:
        yield Damage(0, f"not JSON: {error}", source.size)
        return
    if not isinstance(members, dict):
        yield Damage(0, "not a JSON object", source.size)
        return
    for key, value in members.items():
        yield Row("property", {"key": key, "value": value})
    yield Summary({"properties": len(members), "bytes": source.size})


def _whole(source: Source) -> bytes:
    return source.read(0, _MAX_BYTES)


def _producer_row(content: bytes, at: int) -> Row:
    producer_id, epoch, sequence, offset, delta, timestamp, coordinator_epoch, txn = (
        _PRODUCER.unpack_from(content, at)
    )
    return Row(
        "producer",
        {
            "producerId": producer_id,
            "producerEpoch": epoch,
            "coordinatorEpoch": coordinator_epoch,
            "currentTxnFirstOffset": None if txn < 0 else txn,
            "firstSequence": (sequence - delta) & 0x7FFFFFFF if sequence >= 0 else sequence,
            "lastSequence": sequence,
            "lastOffset": offset,
            "offsetDelta": delta,
            "timestamp": timestamp,
        },
    )


def _checkpoint_findings(
    source: Source, names: tuple[str, ...], check: Callable[[int, int], str | None]
) -> Iterator[Finding]:
    """Yield the entries of a checkpoint: version, count, and lines that end with two numbers."""
    lines = _whole(source).split(b"\n")
    position, rows = 0, 0
    for number, line in enumerate(lines):
        left = source.size - position
        if number == 0 and line.strip() not in (b"0", b""):
            yield Damage(0, f"version {_text(line)!r} is unknown", left)
        elif number > 1 and line.strip():
            row, reason = _checkpoint_row(line, names, check)
            if row is not None:
                rows += 1
                yield row
            if reason is not None:
                yield Damage(position, reason, left)
        position += len(line) + 1
    announced = _text(lines[1].strip()) if len(lines) > 1 else "0"
    if announced != str(rows):
        at = len(lines[0]) + 1
        yield Damage(
            at, f"the count is {announced!r}, but there are {rows} entries", source.size - at
        )
    yield Summary({"entries": rows, "bytes": source.size})


def _checkpoint_row(
    line: bytes, names: tuple[str, ...], check: Callable[[int, int], str | None]
) -> tuple[Row | None, str | None]:
    words = _text(line).split()
    try:
        numbers = int(words[-2]), int(words[-1])
        fields: Fields = dict(zip(names, (*words[:-2], *numbers), strict=True))
    except (ValueError, IndexError):
        return None, f"{_text(line)!r} should be {', '.join(names)}"
    return Row("checkpoint entry", fields), check(*numbers)


def _text(line: bytes) -> str:
    return line.decode(errors="replace")
