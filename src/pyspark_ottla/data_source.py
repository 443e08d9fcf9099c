"""The data source `ottla`: the class behind `format("ottla")`.

Options are checked when the DataFrame is created, not when the query runs. Spark pickles this
object and its readers and sends them to other processes, so they hold plain data only.
"""

from __future__ import annotations

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from pyspark_ottla.options.option_values import OptionError
from pyspark_ottla.options.source_options import batch_options, source_options, stream_options
from pyspark_ottla.schema import schema
from pyspark_ottla.sink.writer import BatchWriter, StreamWriter, batch_writer, stream_writer
from pyspark_ottla.source.batch_reader import BatchReader, FilteredBatchReader
from pyspark_ottla.source.pushed_filters import spark_pushes_filters
from pyspark_ottla.source.stream_reader import StreamReader


class DefaultSource(DataSource):
    """Topics of Ottla, or of any Kafka, as DataFrames."""

    @classmethod
    def name(cls) -> str:
        return "ottla"

    def schema(self) -> StructType:
        """Return the columns that the options select."""
        return schema(source_options(self.options).columns)

    def reader(self, schema: StructType) -> BatchReader:
        """Return the reader of a batch query. Raise OptionError if the user set a schema."""
        options = batch_options(self.options)
        _check_schema(schema, options.source.columns)
        takes_filters = options.push_filters and spark_pushes_filters()
        return FilteredBatchReader(options) if takes_filters else BatchReader(options)

    def streamReader(self, schema: StructType) -> StreamReader:
        """Return the reader of a streaming query. Raise OptionError if the user set a schema."""
        options = stream_options(self.options)
        _check_schema(schema, options.source.columns)
        return StreamReader(options)

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        """Return the writer of a batch query with this schema."""
        return batch_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
        """Return the writer of a streaming query with this schema."""
        return stream_writer(self.options, schema, overwrite)


def _check_schema(given: StructType, columns: tuple[str, ...]) -> None:
    if given != schema(columns):
        raise OptionError(
            "the schema of this source is fixed and cannot be set:"
            " choose columns with the option columns"
        )
