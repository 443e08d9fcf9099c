"""The source of a load whose workers write files. Its rows are the written files.

Offsets, checkpoints, data loss and groups work as in the source `ottla`. Only the tasks differ:
they write their records to files. A load registers this source in its own session. Reading the
rows writes the files, so the load must collect each batch exactly once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, InputPartition
from pyspark.sql.types import LongType, StringType, StructField, StructType

from pyspark_ottla.fetch.offset_range import OffsetRange
from pyspark_ottla.options.source_options import StreamOptions, stream_options
from pyspark_ottla.parquet.file_options import FileWriting, file_writing
from pyspark_ottla.source.stream_reader import StreamReader
from pyspark_ottla.source.task_plan import ReadTask, pack_ranges, size_of, tasks_for_files

if TYPE_CHECKING:
    from pyarrow import RecordBatch

NAME = "ottla_files"
FILES = StructType(
    [
        StructField("name", StringType()),
        StructField("size", LongType()),
        StructField("rows", LongType()),
    ]
)


class FilesSource(DataSource):
    """The files that the records of a stream were written to."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        """Return the columns. There is a row for each file."""
        return FILES

    def streamReader(self, schema: StructType) -> FilesReader:
        """Return the reader of a streaming query. Batch queries are not supported."""
        return FilesReader(stream_options(self.options), file_writing(self.options))


class FilesReader(StreamReader):
    """Plans like any stream, but with fewer tasks for a small batch. Writes on executors."""

    def __init__(self, options: StreamOptions, writing: FileWriting) -> None:
        super().__init__(options)
        self._writing = writing

    def plan(self, ranges: Sequence[OffsetRange]) -> list[ReadTask]:
        """Return the tasks of a batch: fewer than usual if their files would be too small."""
        tasks = super().plan(ranges)
        pieces = [piece for task in tasks for piece in task.ranges]
        rows_a_file = self._writing.rows_a_file()
        if rows_a_file is None:
            return tasks
        wanted = tasks_for_files(sum(map(size_of, pieces)), len(tasks), rows_a_file)
        return tasks if wanted >= len(tasks) else pack_ranges(pieces, wanted)

    def read(self, partition: InputPartition) -> Iterator[RecordBatch]:
        """Write the records of one task. When all files are complete, yield a row for each."""
        import pyarrow as pa

        from pyspark_ottla.parquet.file_writer import write_files

        columns = self._options.source.columns
        files = write_files(super().read(partition), columns, self._writing)
        if files:
            kinds = [pa.string(), pa.int64(), pa.int64()]
            arrays = [pa.array(*each) for each in zip(zip(*files, strict=True), kinds, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, FILES.fieldNames())
