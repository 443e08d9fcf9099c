"""Reads one source: topics, a table, or files."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from ottla_spark.pipelines.spec.dead_letters import check_dead_letters
from ottla_spark.pipelines.spec.fields import Fields
from ottla_spark.pipelines.spec.model import (
    BAD_RECORDS,
    BINARY_FORMATS,
    FILE_FORMATS,
    RECORD_COLUMNS,
    TOPIC_FORMATS,
    FileSource,
    Source,
    TableSource,
    TopicSource,
)
from ottla_spark.pipelines.spec.problems import closest
from ottla_spark.pipelines.spec.shared_keys import read_watermark
from ottla_spark.pipelines.spec.table_place import parse_place
from ottla_spark.pipelines.spec.yaml_tree import Scalar

_NEEDED_SCHEMAS: Final = {
    "json": 'JSON needs a schema, such as "id long, at timestamp"',
    "avro": "Avro needs a schema file, such as orders.avsc",
    "protobuf": "Protobuf needs a .proto file or a descriptor set",
}
_ONLY_WITH: Final = {
    "schema": tuple(_NEEDED_SCHEMAS),
    "bad_records": tuple(_NEEDED_SCHEMAS),
    "dead_letters": tuple(_NEEDED_SCHEMAS),
    "message": ("protobuf",),
    "registry": BINARY_FORMATS,
    "registry_login": BINARY_FORMATS,
}


def read_source(name: str, fields: Fields, file: Path) -> Source | None:
    """Read a source; return None, with a problem, if it is incomplete."""
    kind = fields.one_of("topic", "pattern", "table", "files")
    if kind == "table":
        return _table(name, fields, file)
    if kind == "files":
        return _files(name, fields)
    if kind is None:
        return None
    return _topic(name, fields, file)


def _topic(name: str, fields: Fields, file: Path) -> Source | None:
    source = TopicSource(
        name=name,
        line=fields.line,
        topics=fields.words("topic"),
        pattern=fields.word("pattern"),
        format=fields.choice("format", TOPIC_FORMATS, "raw"),
        schema=fields.word("schema"),
        keep=fields.words("keep"),
        bad_records=fields.choice("bad_records", BAD_RECORDS, "fail"),
        starting=fields.word("starting"),
        options=fields.pairs("options"),
        watermark=read_watermark(fields),
        message=fields.word("message"),
        registry=fields.word("registry"),
        registry_login=fields.word("registry_login"),
        dead_letters=fields.word("dead_letters"),
    )
    _check_format(source, fields)
    source = check_dead_letters(source, fields, file)
    return source if source.topics or source.pattern else None


def _check_format(source: TopicSource, fields: Fields) -> None:
    if source.format in _NEEDED_SCHEMAS and source.schema is None and not fields.has("schema"):
        fields.complain("schema", f"is missing: {_NEEDED_SCHEMAS[source.format]}")
    for key, formats in _ONLY_WITH.items():
        if fields.has(key) and source.format not in formats:
            wanted = " or ".join(formats)
            fields.complain(key, f"needs format {wanted}, but the format is {source.format}")
    if source.registry_login is not None and source.registry is None:
        fields.complain("registry_login", "needs registry, which is missing")
    if source.format == "raw" and source.keep:
        fields.complain("keep", "is not needed: format raw has all columns of the record")
    for column in source.keep:
        if column.text not in RECORD_COLUMNS:
            hint = closest(column.text, RECORD_COLUMNS)
            fields.complain("keep", f"a record has no column {column.text!r}{hint}", column.line)


def _table(name: str, fields: Fields, file: Path) -> Source | None:
    written = fields.word("table")
    if written is None:
        return None
    place = parse_place(written, file)
    if isinstance(place, str):
        fields.complain("table", place, written.line)
        return None
    return TableSource(name, fields.line, place)


def _files(name: str, fields: Fields) -> Source | None:
    path = fields.word("files")
    source = FileSource(
        name=name,
        line=fields.line,
        path=path or Scalar(fields.line, ""),
        format=fields.choice("format", FILE_FORMATS, "parquet"),
        schema=fields.word("schema"),
        streams=fields.flag("stream"),
        options=fields.pairs("options"),
        watermark=read_watermark(fields),
    )
    _check_files(source, fields)
    return source if path else None


def _check_files(source: FileSource, fields: Fields) -> None:
    needs_schema = source.streams and source.format not in ("parquet", "orc", "text")
    if needs_schema and source.schema is None and not fields.has("schema"):
        fields.complain("schema", f"is missing: a stream of {source.format} files needs a schema")
    if source.watermark is not None and not source.streams:
        fields.complain("watermark", "needs stream: true")
