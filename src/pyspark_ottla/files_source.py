"""The source of a load whose workers write: rows are the files they wrote, not the records.

Offsets, checkpoints, data loss and groups are those of the source `ottla`; only what a task
does with its records differs. A load registers this source in its own session. Reading its
rows writes files, so a batch is collected once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, InputPartition
from pyspark.sql.types import LongType, StringType, StructField, StructType

from pyspark_ottla.file_writing import FileWriting, file_writing
from pyspark_ottla.options import StreamOptions, stream_options
from pyspark_ottla.planning import pack_ranges, size_of, tasks_for_files
from pyspark_ottla.ranges import OffsetRange, ReadTask
from pyspark_ottla.stream import StreamReader

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
    """The files that a stream of records became."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        """A row for each file."""
        return FILES

    def streamReader(self, schema: StructType) -> FilesReader:
        """A streaming read; there is no other."""
        return FilesReader(stream_options(self.options), file_writing(self.options))


class FilesReader(StreamReader):
    """Plans as any stream, but few files of a small batch; writes on executors."""

    def __init__(self, options: StreamOptions, writing: FileWriting) -> None:
        super().__init__(options)
        self._writing = writing

    def plan(self, ranges: Sequence[OffsetRange]) -> list[ReadTask]:
        """The tasks of a batch: as many as are read well, unless their files were too small."""
        tasks = super().plan(ranges)
        pieces = [piece for task in tasks for piece in task.ranges]
        rows_a_file = self._writing.rows_a_file()
        if rows_a_file is None:
            return tasks
        wanted = tasks_for_files(sum(map(size_of, pieces)), len(tasks), rows_a_file)
        return tasks if wanted >= len(tasks) else pack_ranges(pieces, wanted)

    def read(self, partition: InputPartition) -> Iterator[RecordBatch]:
        """Write the records of one task; a row for each file, when all of them are complete."""
        import pyarrow as pa

        from pyspark_ottla.parquet_files import write_files

        columns = self._options.source.columns
        files = write_files(super().read(partition), columns, self._writing)
        if files:
            kinds = [pa.string(), pa.int64(), pa.int64()]
            arrays = [pa.array(*each) for each in zip(zip(*files, strict=True), kinds, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, FILES.fieldNames())
