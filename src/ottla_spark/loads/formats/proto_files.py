"""Compiles Protobuf schemas to descriptor sets, and finds messages in them."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from ottla_spark.loads.errors import LoadError, LoadUsageError
from ottla_spark.loads.formats.schema_registry import RegisteredSchema, Registry

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor
    from google.protobuf.descriptor_pool import DescriptorPool

MAIN = "ottla_main.proto"
MAX_CACHED = 1000
MOST_IMPORTS = 200


def read_proto_file(path: Path) -> bytes:
    """Return the descriptor set of a .proto file, or of a file that is one; main file last."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise LoadUsageError(f"cannot read the schema {path}: {error.strerror}") from None
    if path.suffix != ".proto":
        _files(content, str(path))
        return content
    return _compile(path.parent, path.name, str(path))


def compile_texts(main: str, imports: Mapping[str, str], source: str) -> bytes:
    """Return the descriptor set of a schema and of the texts that it imports by name."""
    with tempfile.TemporaryDirectory(prefix="ottla-proto-") as directory:
        for name, text in {MAIN: main, **imports}.items():
            place = Path(directory, name).resolve()
            if not place.is_relative_to(Path(directory).resolve()):
                raise LoadError(f"{source} imports {name!r}, which is not the name of a schema")
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text, encoding="utf-8")
        return _compile(Path(directory), MAIN, source)


@lru_cache(maxsize=MAX_CACHED)
def registered(registry: Registry, schema_id: int) -> bytes:
    """Return the descriptor set of a registry's schema and all that it refers to."""
    schema = registry.schema(schema_id)
    if schema.kind != "PROTOBUF":
        raise LoadUsageError(f"schema {schema_id} is {schema.kind}, not Protobuf: change --format")
    imports: dict[str, str] = {}
    _fetch_imports(registry, schema, imports)
    return compile_texts(schema.text, imports, f"schema {schema_id}")


def message_named(descriptors: bytes, name: str | None, source: str) -> Descriptor:
    """Return the message with this name, or the only one of the main file."""
    pool, files = _pool(descriptors), _files(descriptors, source)
    if name is not None:
        try:
            return pool.FindMessageTypeByName(name)
        except KeyError:
            pass
        for file in files:  # without its package
            for descriptor in pool.FindFileByName(file).message_types_by_name.values():
                if descriptor.name == name:
                    return descriptor
        raise LoadUsageError(f"{source} has no message {name}")
    messages = list(pool.FindFileByName(files[-1]).message_types_by_name.values())
    if len(messages) != 1:
        names = ", ".join(message.name for message in messages)
        raise LoadUsageError(
            f"{source} has several messages ({names}): choose one with --message, or with the key"
            " `message` of a pipeline file"
        )
    return messages[0]


def message_at(descriptors: bytes, indexes: tuple[int, ...]) -> Descriptor | None:
    """Return the message at this position of the main file; None if there is none."""
    found: Descriptor | None = None
    messages = list(
        _pool(descriptors)
        .FindFileByName(_files(descriptors, "")[-1])
        .message_types_by_name.values()
    )
    for index in indexes:
        if not 0 <= index < len(messages):
            return None
        found = messages[index]
        messages = list(found.nested_types)
    return found


def _fetch_imports(registry: Registry, schema: RegisteredSchema, imports: dict[str, str]) -> None:
    for reference in schema.references:
        if reference.name in imports:
            continue
        if len(imports) >= MOST_IMPORTS:
            raise LoadError(f"a schema imports more than {MOST_IMPORTS} others")
        found = registry.version(reference)
        imports[reference.name] = found.text
        _fetch_imports(registry, found, imports)


def _compile(directory: Path, name: str, source: str) -> bytes:
    """Run protoc of grpcio-tools in a process of its own, because it writes to stderr."""
    import subprocess
    import sys

    with tempfile.TemporaryDirectory(prefix="ottla-proto-") as out:
        made = Path(out, "descriptors")
        ran = subprocess.run(
            [sys.executable, "-m", "grpc_tools.protoc", f"-I{directory}", "--include_imports",
             f"--descriptor_set_out={made}", name],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if ran.returncode != 0:
            raise LoadUsageError(f"{source} does not compile: {ran.stderr.strip()}")
        return made.read_bytes()


def _files(descriptors: bytes, source: str) -> list[str]:
    """Return the file names of a descriptor set. protoc puts the main one last."""
    from google.protobuf.descriptor_pb2 import FileDescriptorSet
    from google.protobuf.message import DecodeError

    try:
        names = [file.name for file in FileDescriptorSet.FromString(descriptors).file]
    except DecodeError:
        names = []
    if not names:
        raise LoadUsageError(f"{source} is neither a .proto file nor a descriptor set")
    return names


@lru_cache(maxsize=MAX_CACHED)
def _pool(descriptors: bytes) -> DescriptorPool:
    from google.protobuf.descriptor_pb2 import FileDescriptorSet
    from google.protobuf.descriptor_pool import DescriptorPool

    pool = DescriptorPool()
    for file in FileDescriptorSet.FromString(descriptors).file:
        pool.Add(file)
    return pool
