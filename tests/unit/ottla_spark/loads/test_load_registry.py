"""A schema registry over real HTTP: answers, errors, timeouts, references, framed values."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import fastavro
import pytest
from pyspark.sql.types import IntegerType, StructField, StructType

from ottla_spark.loads.errors import LoadError, LoadUsageError
from ottla_spark.loads.formats import schema_registry as registry_module
from ottla_spark.loads.formats.avro import FramedAvro, avro_schema_struct
from ottla_spark.loads.formats.binary_format import BinaryFormat, Decoded, Misfit
from ottla_spark.loads.formats.format_choice import choose_format
from ottla_spark.loads.formats.protobuf import FramedProtobuf
from ottla_spark.loads.formats.schema_registry import Registry, UnknownSchema
from ottla_spark.loads.options.load_options import LoadOptions
from ottla_spark.loads.options.value_format import ValueFormat
from ottla_spark.loads.schema.field_types import field_types
from ottla_spark.loads.targets.address import TableAddress

NAME = {"name": "n", "type": "string"}
WHO = {"type": "record", "name": "Who", "namespace": "shop", "fields": [NAME]}
ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [{"name": "by", "type": "shop.Who"}, {"name": "to", "type": ["null", "Who"]}],
}
MAIN = """
syntax = "proto3";
import "who.proto";
message Order { Who by = 1; message In { int32 x = 1; } }
"""
ANSWERS: dict[str, object] = {
    "/schemas/ids/1": {"schema": json.dumps(WHO)},
    "/schemas/ids/2": {
        "schema": json.dumps(ORDER),
        "references": [{"name": "shop.Who", "subject": "a/b", "version": 3}],
    },
    "/subjects/a%2Fb/versions/3": {"schema": json.dumps(WHO)},
    "/schemas/ids/3": {
        "schema": MAIN,
        "schemaType": "PROTOBUF",
        "references": [{"name": "who.proto", "subject": "who", "version": 1}],
    },
    "/subjects/who/versions/1": {
        "schema": 'syntax = "proto3"; message Who { string n = 1; }',
        "schemaType": "PROTOBUF",
    },
    "/schemas/ids/4": ["no object"],
    "/schemas/ids/5": {"text": "no schema"},
}


@pytest.fixture
def asked() -> list[str]:
    return []


@pytest.fixture
def url(asked: list[str]) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            if self.path == "/schemas/ids/6":
                self.send_error(503)
            elif self.path == "/schemas/ids/7":
                self.send_error(401)
            elif self.path in ANSWERS:
                body = json.dumps(ANSWERS[self.path]).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)
            else:
                self.send_error(404)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry_module, "FIRST_PAUSE_S", 0.001)


def test_a_schema_is_asked_for_once(url: str, asked: list[str]) -> None:
    registry = Registry(url + "/")
    assert registry.schema(1).text == Registry(url + "/").schema(1).text
    assert asked == ["/schemas/ids/1"]


def test_an_unknown_schema_is_not_the_registrys_fault(url: str) -> None:
    with pytest.raises(UnknownSchema, match="schema 99 is not in the registry"):
        Registry(url).schema(99)


def test_what_stops_a_load(url: str, asked: list[str]) -> None:
    with pytest.raises(LoadError, match="does not answer"):
        Registry(url).schema(6)
    assert asked.count("/schemas/ids/6") == registry_module.TRIES
    with pytest.raises(LoadError, match="refuses /schemas/ids/7: HTTP Error 401"):
        Registry(url).schema(7)
    assert asked.count("/schemas/ids/7") == 1
    with pytest.raises(LoadError, match="does not answer"):
        Registry("http://127.0.0.1:1").schema(1)
    with pytest.raises(LoadError, match="does not answer: not a JSON object"):
        Registry(url).schema(4)
    with pytest.raises(LoadError, match="did not answer with a schema"):
        Registry(url).schema(5)
    with pytest.raises(LoadUsageError, match="should be a URL"):
        Registry("localhost:8081")


def test_a_login_is_not_shown() -> None:
    assert "secret" not in repr(Registry("http://x", "me:secret"))


def test_avro_with_references(url: str) -> None:
    decoder = FramedAvro(Registry(url), frozenset())
    assert dict(field_types(decoder.fields_of("2"))) == {"by.n": "STRING", "to.n": "STRING"}
    out = io.BytesIO()
    to = {"name": "to", "type": ["null", "Who"]}
    whole = ORDER | {"fields": [{"name": "by", "type": WHO}, to]}
    fastavro.schemaless_writer(
        out, fastavro.parse_schema(whole), {"by": {"n": "me"}, "to": {"n": "you"}}
    )
    value = b"\0\0\0\0\2" + out.getvalue()
    assert decoder.decode(value) == ({"by": {"n": "me"}, "to": {"n": "you"}}, "2")
    assert decoder.ignoring(["2"]).decode(value).unknown is None
    with pytest.raises(Misfit, match="schema 99"):
        decoder.decode(b"\0\0\0\0\x63x")
    with pytest.raises(LoadUsageError, match="is PROTOBUF, not Avro"):
        decoder.decode(b"\0\0\0\0\3x")


def test_an_older_schema_has_no_new_field() -> None:
    columns = avro_schema_struct(NEWER, "the schema")
    form = BinaryFormat(columns, OlderAvro())
    learned = form.learn(["1"], [])
    assert (learned.fields.fields, learned.left_out) == ([], {})
    assert [field.name for field in form.learn(["2"], [], {"taken"}).fields.fields] == ["new"]
    assert form.learn(["field number 9"], []).left_out == {
        "field number 9": "the schema does not have it"
    }


NEWER = '{"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"},'
NEWER += ' {"name": "b", "type": "int"}]}'


class OlderAvro:
    """A decoder that knows the schemas 1, which lacks a field, and 2, which has two more."""

    def decode(self, value: bytes) -> Decoded:
        raise AssertionError(value)

    def fields_of(self, unknown: str) -> StructType:
        names = {"1": ["a"], "2": ["a", "b", "new", "Taken"]}.get(unknown, [])
        return StructType([StructField(name, IntegerType()) for name in names])

    def ignoring(self, unknown: Sequence[str]) -> OlderAvro:
        return self


def test_protobuf_with_imports_and_positions(url: str) -> None:
    decoder = FramedProtobuf(Registry(url), None, frozenset())
    order = b"\0\0\0\0\3" + b"\0" + bytes([10, 3, 10, 1, 97])
    assert decoder.decode(order) == ({"by": {"n": "a"}}, "3:0")
    inner = b"\0\0\0\0\3" + b"\x04\0\0" + bytes([8, 7])
    assert decoder.decode(inner) == ({"x": 7}, "3:0.0")
    assert dict(field_types(decoder.fields_of("3:0.0"))) == {"x": "INT"}
    with pytest.raises(Misfit, match="no message at"):
        decoder.decode(b"\0\0\0\0\3" + b"\x02\x12")
    with pytest.raises(Misfit, match=r"is a Order\.In, not a Order"):
        FramedProtobuf(Registry(url), "Order", frozenset()).decode(inner)


def test_a_schema_file_decides_the_columns_beside_a_registry(url: str, tmp_path: Path) -> None:
    file = tmp_path / "who.avsc"
    file.write_text(json.dumps(WHO))
    options = LoadOptions(
        topic="t",
        to=TableAddress("parquet", "/t"),
        client={},
        format=ValueFormat.AVRO,
        registry=url,
        schema=str(file),
    )
    chosen = choose_format(options, None, [])  # no record was looked at, and none has to be
    assert chosen is not None
    assert dict(field_types(chosen.schema)) == {"n": "STRING"}
