"""Every message in every version, compared with kio: same bytes out, same values back in.

Random kio messages and their Ottla twins are built side by side from kio's own dataclasses, so
a field, version or default that the generator got wrong shows as different bytes.
"""

from __future__ import annotations

import dataclasses
import importlib
import io
import random
import sys
import uuid
from datetime import UTC, datetime, timedelta
from types import NoneType
from typing import get_args, get_origin

import pytest

from ottla.wire.codec import decoder, encoder
from ottla.wire.header import request_header, response_header
from ottla.wire.message import Message

with pytest.MonkeyPatch.context() as patch:
    if "hypothesis" not in sys.modules:
        patch.setitem(sys.modules, "hypothesis", None)  # kio would load it: 1.5 s
    kio_index = pytest.importorskip("kio.schema.index")
    from kio.schema.errors import ErrorCode
    from kio.serial import entity_writer

INTEGER_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
TEXTS = ("", "a", "topic-1", "Größe-αβγ-🙂", "x" * 126, "y" * 127, "z" * 300)
ERROR_CODES = list(ErrorCode)
HEADERS = {"request_header", "response_header"}
INSTANCES_PER_VERSION = 8


def random_value(kafka_type: str, rng: random.Random) -> tuple[object, object]:
    """Return a value of a primitive type for kio, and the same for Ottla."""
    if kafka_type in INTEGER_BITS:
        limit = 1 << INTEGER_BITS[kafka_type] - 1
        number = rng.choice((0, 1, -1, limit - 1, -limit, rng.randrange(-limit, limit)))
        return number, number
    if kafka_type == "uint16":
        number = rng.choice((0, 0xFFFF, rng.randrange(0x10000)))
        return number, number
    if kafka_type == "string":
        text = rng.choice(TEXTS)
        return text, text
    if kafka_type in ("bytes", "records"):
        data = rng.choice((b"", b"\0", rng.randbytes(40), bytes(200)))
        return data, data
    if kafka_type == "bool":
        flag = rng.random() < 0.5
        return flag, flag
    if kafka_type == "float64":
        fraction = rng.uniform(-1e9, 1e9)
        return fraction, fraction
    return random_converted(kafka_type, rng)


def random_converted(kafka_type: str, rng: random.Random) -> tuple[object, object]:
    """Return the same for types that kio shows as something else than what is on the wire."""
    if kafka_type == "uuid":
        data = rng.choice((bytes(16), rng.randbytes(16)))
        return (uuid.UUID(bytes=data) if any(data) else None), data
    if kafka_type == "error_code":
        code = rng.choice(ERROR_CODES)
        return code, int(code)
    if kafka_type in ("timedelta_i32", "timedelta_i64"):
        limit = 1 << 31 if kafka_type == "timedelta_i32" else 1 << 40
        ms = rng.choice((0, -1, limit - 1, rng.randrange(-limit, limit)))
        return timedelta(milliseconds=ms), ms
    assert kafka_type == "datetime_i64"
    ms = rng.randrange(1 << 41)
    return datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=ms), ms


def strip_optional(annotation: object) -> tuple[object, bool]:
    parts = get_args(annotation)
    if get_origin(annotation) is tuple or NoneType not in parts:
        return annotation, False
    return next(part for part in parts if part is not NoneType), True


def random_twins(
    kio_class: type, ours: type[Message], rng: random.Random
) -> tuple[object, Message]:
    """Return a random kio entity and the same as an Ottla message."""
    kio_values: dict[str, object] = {}
    our_values: dict[str, object] = {}
    structs = {field.name: field.of for field in ours.FIELDS}
    for field in dataclasses.fields(kio_class):
        if field.default is not dataclasses.MISSING and rng.random() < 0.3:
            continue  # both sides have their own default: it must come out the same
        struct_class = structs[field.name]
        kio_values[field.name], our_values[field.name] = random_field(field, struct_class, rng)
    return kio_class(**kio_values), ours(**our_values)


def random_field(
    field: dataclasses.Field[object], of: str | type[Message] | None, rng: random.Random
) -> tuple[object, object]:
    inner, optional = strip_optional(field.type)
    kafka_type = field.metadata.get("kafka_type", "")
    # kio writes no null in a tagged field unless that is its default, which is left out.
    can_be_null = optional and ("tag" not in field.metadata or field.default is None)
    if can_be_null and rng.random() < 0.3:
        ours = {"uuid": bytes(16), "datetime_i64": -1}.get(kafka_type)
        return None, (None if get_origin(inner) is tuple else ours)
    if get_origin(inner) is not tuple:
        return random_item(inner, kafka_type, of, rng)
    element, _ = strip_optional(get_args(inner)[0])
    count = rng.choice((0, 1, 2, 3)) if isinstance(of, type) else rng.choice((0, 1, 3, 130))
    pairs = [random_item(element, kafka_type, of, rng) for _ in range(count)]
    return tuple(pair[0] for pair in pairs), [pair[1] for pair in pairs]


def random_item(
    kio_type: object, kafka_type: str, of: str | type[Message] | None, rng: random.Random
) -> tuple[object, object]:
    if isinstance(of, type):
        assert isinstance(kio_type, type)
        return random_twins(kio_type, of, rng)
    return random_value(kafka_type, rng)


def check_nullability(kio_class: type, ours: type[Message], version: int) -> None:
    """Check that null is refused exactly where kio's types refuse it."""
    fields = {field.name: field for field in ours.FIELDS}
    for field in dataclasses.fields(kio_class):
        inner, optional = strip_optional(field.type)
        shown_as_none = field.metadata.get("kafka_type") in ("uuid", "datetime_i64")
        if not shown_as_none or get_origin(inner) is tuple:
            assert fields[field.name].is_nullable(version) == optional, (kio_class, field.name)
        of = fields[field.name].of
        if isinstance(of, type):
            element = get_args(inner)[0] if get_origin(inner) is tuple else inner
            assert isinstance(element, type)
            check_nullability(element, of, version)


def kio_bytes(entity: object) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(entity))(buffer, entity)  # type: ignore[type-var]
    return buffer.getvalue()


def message_modules() -> list[str]:
    return sorted(set(kio_index.schema_name_map) - HEADERS)


def message_versions(module_name: str) -> list[tuple[type, type[Message], int]]:
    """Return kio's class, ours and the version, for all messages of an API."""
    found = []
    module = importlib.import_module(f"ottla.wire.messages.{module_name}")
    for version, paths in kio_index.schema_name_map[module_name].items():
        for path in paths.values():
            where, name = path.split(":")
            kio_class = getattr(importlib.import_module(where), name)
            found.append((kio_class, getattr(module, name), version))
    return found


@pytest.mark.parametrize("module_name", message_modules())
def test_same_bytes_as_kio_and_back(module_name: str) -> None:
    rng = random.Random(module_name)
    for kio_class, ours, version in message_versions(module_name):
        check_nullability(kio_class, ours, version)
        for _ in range(INSTANCES_PER_VERSION):
            entity, message = random_twins(kio_class, ours, rng)
            data = kio_bytes(entity)
            assert encoder(ours, version)(message) == data
            framed = rng.randbytes(3) + data + rng.randbytes(5)
            for buffer in (framed, bytearray(framed), memoryview(framed)):
                decoded, position = decoder(ours, version)(buffer, 3, 3 + len(data))
                assert (decoded, position) == (message, 3 + len(data))


def test_headers_are_those_of_kio() -> None:
    checked = 0
    for key, module_name in kio_index.api_key_map.items():
        for kio_class, ours, version in message_versions(module_name):
            schema = vars(kio_class)["__header_schema__"]
            if ours.__name__.endswith("Request"):
                header = schema(
                    request_api_key=key,
                    request_api_version=version,
                    correlation_id=77,
                    client_id="me",
                )
                assert request_header(key, version, 77, "me") == kio_bytes(header)
            else:
                assert response_header(key, version, 77) == kio_bytes(schema(correlation_id=77))
            checked += 1
    assert checked > 500
