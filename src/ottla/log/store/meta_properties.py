"""`meta.properties` of a log directory: the ids of cluster, node and directory (KIP-858)."""

from __future__ import annotations

from ottla.log.file_names import META_PROPERTIES
from ottla.model.ids import uuid_from_text, uuid_to_text
from ottla.model.value import Value
from ottla.ports import Files, read_file, write_file_atomically


class MetaProperties(Value):
    """The identity of a log directory."""

    cluster_id: str
    node_id: int
    directory_id: bytes


class CorruptMetaProperties(ValueError):
    """The file lacks a property or has one that is invalid."""


def encode_meta(meta: MetaProperties) -> bytes:
    """Return the content of the file, version 1."""
    lines = (
        "#",
        f"cluster.id={meta.cluster_id}",
        f"directory.id={uuid_to_text(meta.directory_id)}",
        f"node.id={meta.node_id}",
        "version=1",
        "",
    )
    return "\n".join(lines).encode()


def decode_meta(content: bytes) -> MetaProperties:
    """Return the properties in the file's content; raise CorruptMetaProperties."""
    fields = {}
    for line in content.decode(errors="replace").splitlines():
        name, found, value = line.partition("=")
        if found and not line.startswith(("#", "!")):
            fields[name.strip()] = value.strip()
    try:
        node_id = fields["node.id" if fields.get("version") == "1" else "broker.id"]
        directory_id = fields.get("directory.id")
        return MetaProperties(
            fields["cluster.id"],
            int(node_id),
            uuid_from_text(directory_id) if directory_id else b"",
        )
    except KeyError as error:
        raise CorruptMetaProperties(f"{error.args[0]} is missing") from None
    except ValueError as error:
        raise CorruptMetaProperties(str(error)) from None


def read_meta(files: Files, directory: str) -> MetaProperties | None:
    """Read the identity of a directory, None if it has none yet; raise CorruptMetaProperties."""
    try:
        return decode_meta(read_file(files, f"{directory}/{META_PROPERTIES}"))
    except FileNotFoundError:
        return None
    except CorruptMetaProperties:
        raise
    except ValueError as error:
        raise CorruptMetaProperties(str(error)) from None


def write_meta(files: Files, directory: str, meta: MetaProperties) -> None:
    """Write the identity of a directory and force it to disk."""
    write_file_atomically(files, f"{directory}/{META_PROPERTIES}", encode_meta(meta))
