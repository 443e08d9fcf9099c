"""The content of a pipeline file: sources, steps and sinks, with their lines.

Values that a check may complain about are kept as `Scalar`, which has the line. Names are those
of the file; `graph` and Spark check them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from ottla_spark.pipelines.spec.paths import beside
from ottla_spark.pipelines.spec.table_place import TablePlace
from ottla_spark.pipelines.spec.yaml_tree import Plain, Scalar

DEFAULT_BOOTSTRAP_SERVERS: Final = "127.0.0.1:9092"
TOPIC_FORMATS: Final = ("raw", "text", "json", "avro", "protobuf")
BINARY_FORMATS: Final = ("avro", "protobuf")
TOPIC_SINK_FORMATS: Final = ("raw", "text", "json")
FILE_FORMATS: Final = ("parquet", "json", "csv", "orc", "text")
OUTPUT_MODES: Final = ("append", "update", "complete")
DEAD_LETTERS: Final = "dead letters"
"""The format of a topic sink that a source's `dead_letters` adds. A file cannot name it."""
BAD_RECORDS: Final = ("fail", "drop", "keep")
RECORD_COLUMNS: Final = ("key", "topic", "partition", "offset", "timestamp", "headers", "value")
KEPT_PREFIX: Final = "_"


@dataclass(frozen=True)
class Watermark:
    """How late a row may arrive, by a column of event time."""

    column: Scalar
    delay_ms: int


@dataclass(frozen=True)
class TopicSource:
    """Records of topics, decoded by `format`. `keep` names columns of the record to keep.

    With `has_misfits_only`, its rows are the records that do not fit the schema, with a reason.
    """

    name: str
    line: int
    topics: tuple[Scalar, ...]
    pattern: Scalar | None
    format: str
    schema: Scalar | None
    keep: tuple[Scalar, ...]
    bad_records: str
    starting: Scalar | None
    options: dict[str, Scalar]
    watermark: Watermark | None
    message: Scalar | None = None
    registry: Scalar | None = None
    registry_login: Scalar | None = None
    dead_letters: Scalar | None = None
    has_misfits_only: bool = False
    streams: bool = True


@dataclass(frozen=True)
class TableSource:
    """A table, as it is when a query starts."""

    name: str
    line: int
    place: TablePlace
    streams: bool = False
    watermark: Watermark | None = None


@dataclass(frozen=True)
class FileSource:
    """Files of a directory: the current ones, or a stream of new ones."""

    name: str
    line: int
    path: Scalar
    format: str
    schema: Scalar | None
    streams: bool
    options: dict[str, Scalar]
    watermark: Watermark | None


Source: TypeAlias = TopicSource | TableSource | FileSource


@dataclass(frozen=True)
class SqlStep:
    """A SQL query over sources and steps."""

    name: str
    line: int
    sql: Scalar
    watermark: Watermark | None
    unbounded: bool


@dataclass(frozen=True)
class PythonStep:
    """A function from DataFrames to a DataFrame."""

    name: str
    line: int
    function: Scalar
    inputs: tuple[Scalar, ...]
    arguments: dict[str, Plain]
    watermark: Watermark | None
    unbounded: bool


@dataclass(frozen=True)
class DedupStep:
    """The first row of each key. The watermark decides how long a key is remembered."""

    name: str
    line: int
    columns: tuple[Scalar, ...]
    inputs: tuple[Scalar, ...]
    unbounded: bool
    watermark: Watermark | None = None


Step: TypeAlias = SqlStep | PythonStep | DedupStep


@dataclass(frozen=True)
class TopicSink:
    """Writes rows to a topic."""

    name: str
    line: int
    input: Scalar
    topic: Scalar
    format: str
    key: Scalar | None
    partitions: int | None
    mode: str
    mode_line: int
    options: dict[str, Scalar]


@dataclass(frozen=True)
class TableSink:
    """Writes rows to a table, exactly once. With `upsert`, rows replace those with that key."""

    name: str
    line: int
    input: Scalar
    place: TablePlace
    partition_by: tuple[Scalar, ...]
    upsert: tuple[Scalar, ...]
    mode: str
    mode_line: int


Sink: TypeAlias = TopicSink | TableSink


@dataclass(frozen=True)
class Once:
    """Process the current records, then stop."""


@dataclass(frozen=True)
class Every:
    """Process the current records, and repeat at this interval."""

    interval_ms: int


@dataclass(frozen=True)
class Always:
    """Run micro-batches until stopped, one after the other or at this interval."""

    interval_ms: int = 0


Trigger: TypeAlias = Once | Every | Always


@dataclass(frozen=True)
class PipelineSpec:
    """The content of a whole file."""

    file: Path
    name: str
    bootstrap_servers: str
    bootstrap_line: int
    state: Scalar
    trigger: Trigger
    kafka: dict[str, Scalar]
    conf: dict[str, Scalar]
    catalogs: dict[str, dict[str, Scalar]]
    sources: dict[str, Source]
    steps: dict[str, Step]
    sinks: dict[str, Sink]

    @property
    def state_path(self) -> str:
        """The directory of checkpoints; a relative path starts at the file's directory."""
        return beside(self.file, self.state.text)

    def group_of(self, sink: str) -> str:
        """Return the consumer group that a sink's query commits its offsets to."""
        return f"{self.name}.{sink}"

    def checkpoint_of(self, sink: str) -> str:
        """Return the checkpoint directory of a sink's query."""
        return f"{self.state_path}/{sink}"
