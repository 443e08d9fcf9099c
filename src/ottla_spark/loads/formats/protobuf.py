"""Decodes Protobuf values, with one schema from a file or with the schemas of a registry.

Protobuf keeps fields that the schema lacks, by number. Those are reported as new.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from ottla_spark.loads.formats.binary_format import Decoded, Misfit
from ottla_spark.loads.formats.proto_files import message_at, message_named, registered
from ottla_spark.loads.formats.proto_types import message_fields, message_struct
from ottla_spark.loads.formats.registry_frame import message_indexes, unframe
from ottla_spark.loads.formats.schema_registry import Registry, UnknownSchema

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor
    from google.protobuf.message import Message
    from pyspark.sql.types import StructType

MAX_CACHED = 1000


def proto_struct(descriptors: bytes, message: str | None, source: str) -> StructType:
    """Return the columns of a message of a descriptor set."""
    return message_struct(message_named(descriptors, message, source))


class BareProtobuf:
    """Values without a frame, all of one message. `known` are field numbers that are not new."""

    def __init__(
        self, descriptors: bytes, message: str | None, known: frozenset[str] = frozenset()
    ) -> None:
        self._descriptors = descriptors
        self._message = message
        self._known = known

    def decode(self, value: bytes) -> Decoded:
        """Return the fields of a message."""
        descriptor = _named(self._descriptors, self._message)
        message = _parse(value, descriptor)
        unknown = next((each for each in _unknown(message) if each not in self._known), None)
        return Decoded(message_fields(message), unknown)

    def fields_of(self, unknown: str) -> StructType:
        """Return no fields: only the number of such a field is known."""
        from pyspark.sql.types import StructType

        return StructType([])

    def ignoring(self, unknown: Sequence[str]) -> BareProtobuf:
        """Return a decoder that also knows these field numbers."""
        return BareProtobuf(self._descriptors, self._message, self._known | set(unknown))


class FramedProtobuf:
    """Values whose frame names the schema. `known` are ids whose fields are not new."""

    def __init__(self, registry: Registry, message: str | None, known: frozenset[int]) -> None:
        self._registry = registry
        self._message = message
        self._known = known

    def decode(self, value: bytes) -> Decoded:
        """Return the fields of a message, read with the schema that it was written with."""
        schema_id, start = unframe(value)
        indexes, start = message_indexes(value, start)
        try:
            descriptors = registered(self._registry, schema_id)
        except UnknownSchema as error:
            raise Misfit(str(error)) from None
        descriptor = message_at(descriptors, indexes)
        if descriptor is None:
            raise Misfit(f"schema {schema_id} has no message at {indexes}")
        if self._message is not None and self._message not in {
            descriptor.name,
            descriptor.full_name,
        }:
            raise Misfit(f"the message is a {descriptor.full_name}, not a {self._message}")
        fields = message_fields(_parse(value[start:], descriptor))
        unknown = None if schema_id in self._known else f"{schema_id}:{'.'.join(map(str, indexes))}"
        return Decoded(fields, unknown)

    def fields_of(self, unknown: str) -> StructType:
        """Return the fields of the message that the frame names."""
        schema_id, _, indexes = unknown.partition(":")
        place = tuple(int(index) for index in indexes.split("."))
        descriptor = message_at(registered(self._registry, int(schema_id)), place)
        assert descriptor is not None, unknown
        return message_struct(descriptor)

    def ignoring(self, unknown: Sequence[str]) -> FramedProtobuf:
        """Return a decoder that also knows these schemas."""
        ids = {int(each.partition(":")[0]) for each in unknown}
        return FramedProtobuf(self._registry, self._message, self._known | ids)


@lru_cache(maxsize=MAX_CACHED)
def _named(descriptors: bytes, message: str | None) -> Descriptor:
    return message_named(descriptors, message, "the schema")


def _parse(value: bytes, descriptor: Descriptor) -> Message:
    from google.protobuf.message import DecodeError
    from google.protobuf.message_factory import GetMessageClass

    message = GetMessageClass(descriptor)()
    try:
        message.ParseFromString(value)
    except DecodeError as error:
        raise Misfit(f"not a {descriptor.full_name}: {error}") from None
    return message


def _unknown(message: Message) -> list[str]:
    """Return the fields of a message that its schema lacks."""
    from google.protobuf.unknown_fields import UnknownFieldSet

    return [f"field number {field.field_number}" for field in UnknownFieldSet(message)]
