"""Protobuf: compiled files, column types of messages, values, registry frames."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest
from google.protobuf.message_factory import GetMessageClass
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla_spark.loads.errors import LoadUsageError
from ottla_spark.loads.formats.binary_format import Misfit
from ottla_spark.loads.formats.proto_files import (
    compile_texts,
    message_at,
    message_named,
    read_proto_file,
)
from ottla_spark.loads.formats.protobuf import BareProtobuf, proto_struct
from ottla_spark.loads.formats.registry_frame import message_indexes, unframe
from ottla_spark.loads.schema.field_types import field_types

PROTO = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
enum Kind { NONE = 0; BIG = 1; }
message Order {
  message Line { string name = 1; uint32 count = 2; }
  int64 id = 1;
  optional string note = 2;
  uint64 huge = 3;
  Kind kind = 4;
  bytes raw = 5;
  repeated Line lines = 6;
  map<string, double> prices = 7;
  google.protobuf.Timestamp at = 8;
  google.protobuf.Int32Value maybe = 9;
}
"""


@pytest.fixture(scope="module")
def descriptors() -> bytes:
    return compile_texts(PROTO, {}, "test")


def test_types(descriptors: bytes) -> None:
    assert dict(field_types(proto_struct(descriptors, None, "x"))) == {
        "id": "BIGINT",
        "note": "STRING",
        "huge": "DECIMAL(20,0)",
        "kind": "STRING",
        "raw": "BINARY",
        "lines": "ARRAY<STRUCT<NAME:STRING,COUNT:BIGINT>>",
        "prices": "MAP<STRING,DOUBLE>",
        "at": "TIMESTAMP",
        "maybe": "INT",
    }


def test_values(descriptors: bytes) -> None:
    message = GetMessageClass(message_named(descriptors, "Order", "x"))()
    empty = BareProtobuf(descriptors, None).decode(message.SerializeToString())
    assert empty.fields == {
        "id": 0,
        "note": None,
        "huge": Decimal(0),
        "kind": "NONE",
        "raw": b"",
        "lines": [],
        "prices": [],
        "at": None,
        "maybe": None,
    }
    message.id, message.note, message.huge, message.kind = -5, "", 2**64 - 1, 1
    message.lines.add(name="a", count=2**32 - 1)
    message.prices["x"] = 1.5
    message.at.seconds, message.at.nanos = 10, 5000
    message.maybe.value = 0
    full = BareProtobuf(descriptors, "shop.Order").decode(message.SerializeToString())
    assert full.unknown is None
    assert full.fields == {
        "id": -5,
        "note": "",
        "huge": Decimal(2**64 - 1),
        "kind": "BIG",
        "raw": b"",
        "lines": [{"name": "a", "count": 2**32 - 1}],
        "prices": [("x", 1.5)],
        "at": 10_000_005,
        "maybe": 0,
    }


def test_a_field_that_the_schema_lacks_is_unknown(descriptors: bytes) -> None:
    decoder = BareProtobuf(descriptors, None)
    value = bytes([0xA0, 0x06, 1])  # field 100
    assert decoder.decode(value).unknown == "field number 100"
    assert decoder.ignoring(["field number 100"]).decode(value).unknown is None


@settings(deadline=None, max_examples=50)
@given(st.binary(max_size=60))
def test_invalid_bytes_are_misfits(descriptors: bytes, value: bytes) -> None:
    try:
        BareProtobuf(descriptors, None).decode(value)
    except Misfit:
        pass


def test_a_file_and_its_descriptor_set(tmp_path: Path, descriptors: bytes) -> None:
    path = tmp_path / "order.proto"
    path.write_text(PROTO)
    from_file = read_proto_file(path)
    assert message_named(from_file, None, "x").full_name == "shop.Order"
    made = tmp_path / "order.desc"
    made.write_bytes(descriptors)
    assert read_proto_file(made) == descriptors
    made.write_bytes(b"nonsense")
    with pytest.raises(LoadUsageError, match="nor a descriptor set"):
        read_proto_file(made)
    path.write_text("message {")
    with pytest.raises(LoadUsageError, match="does not compile"):
        read_proto_file(path)


def test_imports_stay_in_their_directory() -> None:
    from ottla_spark.loads.errors import LoadError

    with pytest.raises(LoadError, match="not the name of a schema"):
        compile_texts(PROTO, {"../../escape.proto": ""}, "test")


def test_messages_that_contain_themselves_are_refused() -> None:
    made = compile_texts('syntax = "proto3"; message Tree { repeated Tree of = 1; }', {}, "test")
    with pytest.raises(LoadUsageError, match="contains itself"):
        proto_struct(made, None, "x")


def test_positions_of_messages(descriptors: bytes) -> None:
    line = message_at(descriptors, (0, 0))
    assert line is not None
    assert line.full_name == "shop.Order.Line"
    assert message_at(descriptors, (3,)) is None


def test_registry_frames() -> None:
    assert unframe(b"\0\0\0\1\2rest") == (258, 5)
    assert message_indexes(b"\0x", 0) == ((0,), 1)
    assert message_indexes(b"\x04\x02\x00x", 0) == ((1, 0), 3)
    for value in (b"", b"\0\0\0\0", b"\1\0\0\0\1"):
        with pytest.raises(Misfit, match="not written with a schema registry"):
            unframe(value)
    for value in (b"", b"\x04\x02", b"\xff" * 20, b"\x03", b"\xfe\x01"):
        with pytest.raises(Misfit, match="the frame"):
            message_indexes(value, 0)
