"""Opens the sources of a pipeline as DataFrames.

A check needs no broker: it opens a topic as a stream of files of an empty directory, with the
same schema. Spark then refuses in the check what it would refuse in a run.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ottla_spark.loads.errors import LoadError
from ottla_spark.loads.formats.binary_format import BinaryFormat
from ottla_spark.loads.formats.decoders import bare, framed
from ottla_spark.loads.formats.schema_registry import Registry
from ottla_spark.loads.options.value_format import ValueFormat
from ottla_spark.pipelines.frames.records import decode
from ottla_spark.pipelines.frames.topic_options import source_options
from ottla_spark.pipelines.spec.model import (
    BINARY_FORMATS,
    FileSource,
    PipelineSpec,
    Source,
    TableSource,
    TopicSource,
    Watermark,
)
from ottla_spark.pipelines.spec.paths import beside
from ottla_spark.pipelines.spec.yaml_tree import Scalar
from pyspark_ottla.schema import columns as columns_of
from pyspark_ottla.schema import schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


class BadSchema(Exception):
    """The schema of a source is invalid; the message says why."""

    def __init__(self, schema: Scalar, why: str) -> None:
        super().__init__(why)
        self.schema = schema


@dataclass(frozen=True)
class SourceFrames:
    """Opens sources in a session. Their offsets are committed to `group`.

    A check sets `empty_directory`, which is read in place of every topic.
    """

    spec: PipelineSpec
    session: SparkSession
    group: str
    empty_directory: str | None = None

    def open(self, source: Source) -> DataFrame:
        """Return the rows of a source, with its watermark."""
        return with_watermark(self._rows(source), source.watermark)

    def _rows(self, source: Source) -> DataFrame:
        if isinstance(source, TopicSource):
            return decode(self._records(source), source, self._values(source))
        if isinstance(source, TableSource):
            place = source.place
            catalog = place.catalog(self.spec.catalogs)
            return place.target.read(self.session, place.location, catalog)
        return self._files(source)

    def _values(self, source: TopicSource) -> StructType | BinaryFormat | None:
        """Return the schema of the values; None if the file gives none."""
        if source.schema is None:
            return None
        if source.format in BINARY_FORMATS:
            return binary_format(source, source.schema, self.spec.file)
        return parse_schema(source.schema)

    def _records(self, source: TopicSource) -> DataFrame:
        options = source_options(self.spec, source, self.group)
        if self.empty_directory is not None:
            columns = schema(columns_of(options))
            return self.session.readStream.schema(columns).parquet(self.empty_directory)
        return self.session.readStream.format("ottla").options(**options).load()

    def _files(self, source: FileSource) -> DataFrame:
        path = beside(self.spec.file, source.path.text)
        options = {name: value.text for name, value in source.options.items()}
        if not source.streams:
            plain = self.session.read.format(source.format).options(**options)
            plain = plain.schema(parse_schema(source.schema)) if source.schema else plain
            return plain.load(path)
        stream = self.session.readStream.format(source.format).options(**options)
        return stream.schema(self._stream_schema(source, path)).load(path)

    def _stream_schema(self, source: FileSource, path: str) -> StructType:
        if source.schema is not None:
            return parse_schema(source.schema)
        return self.session.read.format(source.format).load(path).schema


def binary_format(source: TopicSource, schema: Scalar, file: Path) -> BinaryFormat:
    """Return the format of a schema file, with a registry's frame if the source has one."""
    kind = ValueFormat(source.format)
    message = source.message.text if source.message else None
    try:
        decoder, columns = bare(kind, Path(beside(file, schema.text)), message)
        if source.registry is not None:
            login = source.registry_login.text if source.registry_login else ""
            decoder = framed(kind, Registry(source.registry.text, login), message)
    except LoadError as error:
        raise BadSchema(schema, str(error)) from None
    return BinaryFormat(columns, decoder)


def parse_schema(ddl: Scalar) -> StructType:
    """Return the columns of a DDL text such as `id long, at timestamp`."""
    from pyspark.sql.types import StructType

    found = StructType.fromDDL(ddl.text)
    if not isinstance(found, StructType):
        raise BadSchema(
            ddl, f"{ddl.text!r} is a type without column names; write `id long, at timestamp`"
        )
    return found


def with_watermark(rows: DataFrame, watermark: Watermark | None) -> DataFrame:
    """Return the rows with a watermark, if there is one."""
    if watermark is None:
        return rows
    return rows.withWatermark(watermark.column.text, f"{watermark.delay_ms} milliseconds")
