"""The data source `ottla`: what Spark asks for by `format("ottla")`.

Options are checked when the DataFrame is made, not when it runs. Spark pickles this object
and its readers and sends them to other processes: they hold plain data only.
"""

from __future__ import annotations

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from pyspark_ottla import sink
from pyspark_ottla.batch import BatchReader
from pyspark_ottla.option_values import OptionError
from pyspark_ottla.options import batch_options, source_options, stream_options
from pyspark_ottla.schema import schema
from pyspark_ottla.stream import StreamReader


class DefaultSource(DataSource):
    """Topics of Ottla, or of any Kafka, as DataFrames."""

    @classmethod
    def name(cls) -> str:
        return "ottla"

    def schema(self) -> StructType:
        """The columns that the options ask for."""
        return schema(source_options(self.options).columns)

    def reader(self, schema: StructType) -> BatchReader:
        """A batch read; the schema must be the source's own."""
        options = batch_options(self.options)
        _check_schema(schema, options.source.columns)
        return BatchReader(options)

    def streamReader(self, schema: StructType) -> StreamReader:
        """A streaming read; the schema must be the source's own."""
        options = stream_options(self.options)
        _check_schema(schema, options.source.columns)
        return StreamReader(options)

    def writer(self, schema: StructType, overwrite: bool) -> sink.OttlaWriter:
        """A batch write of rows with this schema."""
        return sink.writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> sink.OttlaStreamWriter:
        """A streaming write of rows with this schema."""
        return sink.stream_writer(self.options, schema, overwrite)


def _check_schema(given: StructType, columns: tuple[str, ...]) -> None:
    if given != schema(columns):
        raise OptionError(
            "the schema of this source is fixed and cannot be set:"
            " choose columns with the option columns"
        )
