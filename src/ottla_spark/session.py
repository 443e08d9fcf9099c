"""The Spark session of a command: embedded by default, any master by one option.

What is set here is what a small machine wants, and only what is safe to set: a checkpoint keeps
its meaning, results do not change. Everything can be set otherwise with `conf`, and a session
that runs already is used as it is.

An embedded Spark gets rows from its Python workers through Unix domain sockets, reads 256 KiB of
them at a time, collects garbage with all cores at once, and has Arrow look up values without
checking bounds: each takes some hundredths to a tenth off the CPU that a read of a topic takes.

Its memory outside Java's heap is kept instead of going back to the system: Arrow frees a batch of
rows and asks for the next one's memory, and where that is new to the process every 4 KiB of it are
a page fault (up to 80,000 for a GB, and a quarter of a read's time, in some processes and not in
others).

The checkpoint settings take Spark's other file manager and leave out checksum files. A change
is still one rename, so a killed process leaves the old file or the new one; what is given up is
Spark noticing files that the disk changed by itself.
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
    # Spark's 64 KiB make four times as many reads of a worker's socket.
    "spark.buffer.size": str(256 << 10),
}
COLLECTOR = "-XX:+UseParallelGC"
# Arrow checks every access against the buffer and its reference count. Spark goes through the rows
# that a batch says it has, and batches come from pyarrow on this machine. Arrow's other check, for
# nulls, stays: without it a null reads as an empty value wherever somebody did not ask first.
UNCHECKED = "-Darrow.enable_unsafe_memory_access=true"
# glibc's: below 32 MiB from its own heaps, which shrink only when 256 MiB are free at their end.
# Heaps of threads go as a whole unless there is less behind them than the padding.
KEPT_MEMORY: Mapping[str, str] = {
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(256 << 20),
    "MALLOC_TOP_PAD_": str(64 << 20),
}
_JAVA_VARIABLES = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")


@cache
def prepare_environment(master: str = LOCAL) -> Java:
    """Make this process start Spark with a Java that can run it and with this Python."""
    java = find_java()
    if java.found_by != "JAVA_HOME":
        os.environ["JAVA_HOME"] = str(java.home)
    python = worker_python() if master.startswith("local") else sys.executable
    os.environ.setdefault("PYSPARK_PYTHON", python)
    # For sources that it found by itself, Spark starts this one for everything.
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", python)
    if master.startswith("local"):
        for name, value in KEPT_MEMORY.items():
            os.environ.setdefault(name, value)
    return java


def session_settings(master: str, conf: Mapping[str, str]) -> dict[str, str]:
    """Everything that is set for a session with this master; `conf` wins."""
    local = LOCAL_SETTINGS if master.startswith("local") else {}
    java = f"-Dlog4j2.configurationFile={LOGGING.as_uri()}"
    if local:
        java += f" {UNCHECKED}"
    if local and not _has_collector():
        java += f" {COLLECTOR}"
    return {**SETTINGS, **local, "spark.driver.extraJavaOptions": java, **conf}


def _has_collector() -> bool:
    """Whether the environment chooses Java's garbage collector: with two, Java does not start."""
    return any(re.search(r"-XX:\+Use\w+GC\b", os.environ.get(name, "")) for name in _JAVA_VARIABLES)


def session(
    master: str = LOCAL, *, app_name: str = "ottla", conf: Mapping[str, str] | None = None
) -> SparkSession:
    """The running Spark session, or a new one with this master; NoJava when there is no Java."""
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
    """Keep a thread of PySpark from printing a traceback when Java ends: others say it in words."""
    server: Any = spark.sparkContext._accumulatorServer
    say = server.handle_error

    def handle_error(request: object, address: object) -> None:
        if not isinstance(sys.exception(), EOFError | ConnectionError):
            say(request, address)

    server.handle_error = handle_error
