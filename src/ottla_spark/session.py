"""The Spark session: embedded by default, or on any master.

The settings suit a small machine. They change no results and no checkpoints. `conf` overrides
all of them. A session that already runs is used as it is.

An embedded Spark gets rows from its Python workers through Unix domain sockets, reads 256 KiB at
a time, collects garbage on all cores, and lets Arrow skip bounds checks. Each of these saves one to
ten percent of the CPU time of reading a topic.

Memory outside Java's heap is kept in the process. Arrow frees a batch of rows and then allocates
the next one. If that memory is new to the process, each 4 KiB of it costs a page fault: up to
80,000 per GB, and in some processes a quarter of the time of a read.

The checkpoint settings use Spark's rename-based file manager without checksum files. A file is
still replaced by one rename, so a killed process leaves the old file or the new one. Without
checksums Spark does not notice files that the disk corrupted.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ottla_spark.java import Java, find_java
from ottla_spark.worker_python import worker_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL = "local[*]"
LOGGING = Path(__file__).parent / "log4j2.properties"
_STREAMING = "spark.sql.streaming"

SETTINGS: Mapping[str, str] = {
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.ui.showConsoleProgress": "false",
    f"{_STREAMING}.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing"
        ".FileSystemBasedCheckpointFileManager"
    ),
    f"{_STREAMING}.checkpoint.fileChecksum.enabled": "false",
    f"{_STREAMING}.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
}
LOCAL_SETTINGS: Mapping[str, str] = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "4",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "2g",
    "spark.python.unix.domain.socket.enabled": "true",
    # Spark's default of 64 KiB needs four times as many reads of a worker's socket.
    "spark.buffer.size": str(256 << 10),
}
COLLECTOR = "-XX:+UseParallelGC"
# By default Arrow checks the bounds and the reference count at every access. Spark reads only the
# rows of a batch, and the batches come from pyarrow on this machine. Arrow's check for nulls stays:
# without it, code that does not ask for nulls would read them as empty values.
UNCHECKED = "-Darrow.enable_unsafe_memory_access=true"
# Settings of glibc: allocations below 32 MiB come from its heaps, and a heap shrinks only if 256
# MiB are free at its end. The padding keeps it from releasing the heaps of threads.
KEPT_MEMORY: Mapping[str, str] = {
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(256 << 20),
    "MALLOC_TOP_PAD_": str(64 << 20),
}
_JAVA_VARIABLES = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")


@cache
def prepare_environment(master: str = LOCAL) -> Java:
    """Set the environment so that Spark starts with a suitable Java and with this Python."""
    java = find_java()
    if java.found_by != "JAVA_HOME":
        os.environ["JAVA_HOME"] = str(java.home)
    python = worker_python() if master.startswith("local") else sys.executable
    os.environ.setdefault("PYSPARK_PYTHON", python)
    # Spark uses this one for data sources that it registers by itself.
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", python)
    if master.startswith("local"):
        for name, value in KEPT_MEMORY.items():
            os.environ.setdefault(name, value)
    return java


def session_settings(master: str, conf: Mapping[str, str]) -> dict[str, str]:
    """Return all settings of a session with this master. `conf` overrides them."""
    local = LOCAL_SETTINGS if master.startswith("local") else {}
    java = f"-Dlog4j2.configurationFile={LOGGING.as_uri()}"
    if local:
        java += f" {UNCHECKED}"
    if local and not _has_collector():
        java += f" {COLLECTOR}"
    return {**SETTINGS, **local, "spark.driver.extraJavaOptions": java, **conf}


def _has_collector() -> bool:
    """Return whether the environment sets a garbage collector. Java refuses to start with two."""
    return any(re.search(r"-XX:\+Use\w+GC\b", os.environ.get(name, "")) for name in _JAVA_VARIABLES)


def session(
    master: str = LOCAL, *, app_name: str = "ottla", conf: Mapping[str, str] | None = None
) -> SparkSession:
    """Return the running session, or start one on this master; raise NoJava without a Java."""
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    prepare_environment(master)
    builder: SparkSession.Builder = SparkSession.builder
    builder = builder.master(master).appName(app_name)
    for name, value in session_settings(master, conf or {}).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    _end_quietly(spark)
    return spark


def _end_quietly(spark: SparkSession) -> None:
    """Keep a PySpark thread from printing a traceback when Java ends; others report it."""
    server: Any = spark.sparkContext._accumulatorServer
    original = server.handle_error

    def handle_error(request: object, address: object) -> None:
        if not isinstance(sys.exception(), EOFError | ConnectionError):
            original(request, address)

    server.handle_error = handle_error
