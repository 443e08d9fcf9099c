"""Checks that Spark has the file systems of a pipeline's paths, such as s3a:// or gs://.

Without this, a query would end at its start with an exception of Java.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla_spark.loads.state.object_store import is_object_store
from ottla_spark.pipelines.spec.model import FileSource, PipelineSpec, TableSink, TableSource
from ottla_spark.pipelines.spec.problems import Problems
from ottla_spark.spark_messages import java_cause

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Place(NamedTuple):
    """A path of the file, and where it is written."""

    path: str
    line: int
    where: str


def check_file_systems(spec: PipelineSpec, spark: SparkSession, problems: Problems) -> None:
    """Report paths with a scheme that Spark does not know."""
    for place in _places(spec):
        if "://" not in place.path or is_object_store(place.path) or problems.about(place.where):
            continue
        why = _why_unknown(spark, place.path)
        if why:
            problems.add(place.line, place.where, why)


def _places(spec: PipelineSpec) -> Iterator[Place]:
    yield Place(spec.state_path, spec.state.line, "state")
    for part in (*spec.sources.values(), *spec.sinks.values()):
        kind = "sinks" if isinstance(part, TableSink) else "sources"
        if isinstance(part, TableSink | TableSource) and part.place.is_path:
            where = f"{kind}.{part.name}.table"
            yield Place(part.place.location, part.place.written.line, where)
        elif isinstance(part, FileSource):
            yield Place(part.path.text, part.path.line, f"{kind}.{part.name}.files")


def _why_unknown(spark: SparkSession, path: str) -> str:
    from py4j.protocol import Py4JJavaError

    jvm: Any = spark._jvm
    context: Any = spark.sparkContext
    try:
        jvm.org.apache.hadoop.fs.Path(path).getFileSystem(context._jsc.hadoopConfiguration())
    except Py4JJavaError as error:
        return java_cause(str(error))
    return ""
