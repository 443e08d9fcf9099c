"""kio's typed messages made from plain values, so that a test says only what it means.

kio is generated from Kafka's schemas and shares no code with Ottla: what it encodes and
decodes is an independent judgement of what the broker sends.
"""

from __future__ import annotations

import dataclasses
import datetime
import io
import types
import typing
import uuid
from collections.abc import Mapping
from typing import Any, cast

from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer
from kio.static.protocol import Entity, RequestPayload, ResponsePayload

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def encode_request(
    api_key: int,
    version: int,
    correlation_id: int,
    client_id: str | None,
    fields: Mapping[str, object],
) -> bytes:
    """Return a whole request without its size: header and body, fields not given at their zero."""
    schema = load_request_schema(api_key, version)
    header = build(
        schema.__header_schema__,
        {
            "request_api_key": api_key,
            "request_api_version": version,
            "correlation_id": correlation_id,
            "client_id": client_id,
        },
    )
    out = io.BytesIO()
    entity_writer(schema.__header_schema__)(out, cast(Any, header))
    entity_writer(schema)(out, cast(RequestPayload, build(schema, fields)))
    return out.getvalue()


def decode_response(api_key: int, version: int, frame: bytes) -> tuple[int, ResponsePayload]:
    """Return the correlation id and the body of a response. No byte may be left over."""
    schema = load_response_schema(api_key, version)
    header, used = entity_reader(schema.__header_schema__)(frame, 0)
    body, body_used = entity_reader(schema)(frame, used)
    end = used + body_used
    assert end == len(frame), f"{len(frame) - end} bytes after {schema.__name__} v{version}"
    return header.correlation_id, body


def build(schema: type[Entity], values: Mapping[str, object]) -> Entity:
    """Return an instance of a kio class from plain ints, strings, lists and mappings."""
    fields = {field.name: field for field in dataclasses.fields(schema)}
    unknown = set(values) - set(fields)
    assert not unknown, f"{schema.__name__} v{schema.__version__} has no {sorted(unknown)}"
    return schema(
        **{
            name: _value(field.type, values[name]) if name in values else _default(field)
            for name, field in fields.items()
        }
    )


def _default(field: dataclasses.Field[object]) -> object:
    if field.default is not dataclasses.MISSING:
        return field.default
    kind, optional = _plain(field.type)
    if typing.get_origin(kind) is tuple:
        return ()
    return None if optional else _value(kind, 0)


def _plain(kind: object) -> tuple[object, bool]:
    """Return a type without its `| None`, and whether it had one."""
    if isinstance(kind, types.UnionType) or typing.get_origin(kind) is typing.Union:
        options = [option for option in typing.get_args(kind) if option is not type(None)]
        return options[0], True
    return kind, False


def _value(kind: object, value: object) -> object:
    kind, _ = _plain(kind)
    if value is None:
        return None
    if typing.get_origin(kind) is tuple:
        inner = typing.get_args(kind)[0]
        return tuple(_value(inner, item) for item in cast("list[object]", value))
    assert isinstance(kind, type)
    if dataclasses.is_dataclass(kind):
        return build(cast("type[Entity]", kind), cast("Mapping[str, object]", value or {}))
    return _scalar(kind, value)


def _scalar(kind: type, value: object) -> object:
    if issubclass(kind, datetime.timedelta):
        return datetime.timedelta(milliseconds=cast(int, value))
    if issubclass(kind, datetime.datetime):
        return _EPOCH + datetime.timedelta(milliseconds=cast(int, value))
    if issubclass(kind, uuid.UUID):
        return value or None
    if issubclass(kind, str):
        return value or ""
    if issubclass(kind, bytes):
        return value or b""
    if issubclass(kind, bool):
        return bool(value)
    return value
