"""`partition.metadata`: the id of the topic a directory belongs to (KIP-516)."""

from __future__ import annotations

from ottla.model.ids import ZERO_UUID, uuid_from_text, uuid_to_text
from ottla.ports import Files, read_file, write_file_atomically


def encode_topic_id(topic_id: bytes) -> bytes:
    """Return the content of the file."""
    return f"version: 0\ntopic_id: {uuid_to_text(topic_id)}".encode()


def decode_topic_id(content: bytes) -> bytes:
    """Return the topic id in the file's content; raise ValueError."""
    fields = dict(line.split(": ", 1) for line in content.decode().splitlines() if ": " in line)
    if not fields.get("version", "").isdigit() or "topic_id" not in fields:
        raise ValueError("version and topic_id are expected")
    return uuid_from_text(fields["topic_id"].strip())


def write_topic_id(files: Files, path: str, topic_id: bytes) -> None:
    """Write the file; it is forced to disk with the log's first flush."""
    file = files.open(path, create=True, writable=True)
    file.truncate(0)
    file.pwritev([encode_topic_id(topic_id)], 0)


def read_topic_id(files: Files, path: str, notes: list[str]) -> bytes:
    """Read the topic id of a directory; the zero id if there is none, or if it is damaged."""
    try:
        return decode_topic_id(read_file(files, path))
    except FileNotFoundError:
        return ZERO_UUID
    except ValueError as error:
        notes.append(f"{path}: {error}; the directory's topic id is unknown")
        return ZERO_UUID


def replace_topic_id(files: Files, path: str, topic_id: bytes) -> None:
    """Write the file and force it to disk."""
    write_file_atomically(files, path, encode_topic_id(topic_id))
