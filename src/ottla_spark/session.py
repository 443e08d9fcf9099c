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
import signal
import socket
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ottla_spark.java import Java, NoSpark, find_java
from ottla_spark.java_process import POLL_S, JavaProcess, start_gateway
from ottla_spark.spark_messages import java_cause
from ottla_spark.worker_python import worker_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL = "local[*]"
STANDALONE = "spark://"
MASTER_TIMEOUT_S = 5
LOGGING = Path(__file__).parent / "log4j2.properties"
FILE_LOGGING = Path(__file__).parent / "log4j2-file.properties"
_STREAMING = "spark.sql.streaming"

SETTINGS: Mapping[str, str] = {
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.python.filterPushdown.enabled": "true",
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
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_JAVA_VARIABLES = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")


@cache
def prepare_environment(master: str = LOCAL) -> Java:
    """Set the environment so that Spark starts with a suitable Java and with this Python."""
    java = find_java()
    os.environ["JAVA_HOME"] = str(java.launcher_home())
    python = worker_python() if master.startswith("local") else sys.executable
    os.environ.setdefault("PYSPARK_PYTHON", python)
    # Spark uses this one for data sources that it registers by itself.
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", python)
    if master.startswith("local"):
        for name, value in KEPT_MEMORY.items():
            os.environ.setdefault(name, value)
    return java


def session_settings(
    master: str, conf: Mapping[str, str], log: Path | None = None
) -> dict[str, str]:
    """Return all settings of a session with this master. `conf` overrides them.

    Java options of `conf` are added to the session's own. With `log`, Spark logs to this file.
    """
    local = LOCAL_SETTINGS if master.startswith("local") else {}
    logging = LOGGING if log is None else FILE_LOGGING
    java = [f"-Dlog4j2.configurationFile={logging.as_uri()}"]
    if log is not None:
        java.append(f'"-Dottla.spark.log={log}"')
    if local:
        java.append(UNCHECKED)
    own = conf.get(_JAVA_OPTIONS, "")
    if local and not _has_collector(own):
        java.append(COLLECTOR)
    options = {_JAVA_OPTIONS: " ".join([*java, own]).strip()}
    return {**SETTINGS, **local, **conf, **options}


def _has_collector(own: str) -> bool:
    """Return whether a garbage collector is chosen already. Java refuses to start with two."""
    texts = [own, *(os.environ.get(name, "") for name in _JAVA_VARIABLES)]
    return any(re.search(r"-XX:\+Use\w+GC\b", text) for text in texts)


def session(
    master: str = LOCAL,
    *,
    app_name: str = "ottla",
    conf: Mapping[str, str] | None = None,
    log: Path | None = None,
    stop: threading.Event | None = None,
) -> SparkSession:
    """Return the running session, or start one on this master; raise NoSpark if it cannot start.

    With `log`, what Spark and Java print goes to that file. If `stop` is set while Spark starts,
    raise KeyboardInterrupt. If the start fails or is interrupted, no Java process is left.
    """
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    check_master(master)
    prepare_environment(master)
    settings = session_settings(master, conf or {}, log)
    settings |= {"spark.master": master, "spark.app.name": app_name}
    process = _start_java(settings, log, stop)
    try:
        with _ended_by(stop, process):
            spark = _start_spark(settings)
        spark.sparkContext.setLogLevel("ERROR")
        _end_quietly(spark)
    except BaseException:
        if process is not None:
            _forget_java()
            process.end()
        raise
    return spark


@contextmanager
def _ended_by(stop: threading.Event | None, process: JavaProcess | None) -> Iterator[None]:
    """End the process as soon as `stop` is set in the block, and raise KeyboardInterrupt.

    A call to Java cannot be interrupted, and that which starts Spark takes seconds. It fails when
    the process ends.
    """
    if stop is None or process is None:
        yield
        return
    done = threading.Event()

    def watch() -> None:
        while not done.wait(POLL_S):
            if stop.is_set():
                process.end()
                return

    watching = threading.Thread(target=watch, daemon=True)
    watching.start()
    try:
        yield
    except Exception:  # whatever a call to a process that ends raises
        if not stop.is_set():
            raise
    finally:
        done.set()
        watching.join()
    if stop.is_set():
        raise KeyboardInterrupt


def check_master(master: str) -> None:
    """Raise NoSpark if a standalone master does not answer. Spark itself tries for a minute."""
    if not master.startswith(STANDALONE):
        return
    why = ""
    for address in master.removeprefix(STANDALONE).split(","):
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host, int(port)), MASTER_TIMEOUT_S).close()
        except (OSError, ValueError) as error:
            why = why or str(error)
        else:
            return
    raise NoSpark(f"no Spark master answers at {master}: {why}")


def is_running() -> bool:
    """Return whether this process has a session."""
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession() is not None


def _start_java(
    settings: Mapping[str, str], log: Path | None, stop: threading.Event | None
) -> JavaProcess | None:
    """Start Java for PySpark, unless it runs already."""
    from pyspark import SparkContext

    context: Any = SparkContext
    if context._gateway is not None or "PYSPARK_GATEWAY_PORT" in os.environ:
        return None
    process, gateway = start_gateway(settings, log=log, stop=stop)
    context._ensure_initialized(gateway=gateway)
    return process


def _forget_java() -> None:
    """Let PySpark start another Java process the next time."""
    from pyspark import SparkContext

    context: Any = SparkContext
    context._gateway = context._jvm = None


def _start_spark(settings: Mapping[str, str]) -> SparkSession:
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    builder: SparkSession.Builder = SparkSession.builder
    for name, value in settings.items():
        builder = builder.config(name, value)
    try:
        with _own_interrupts():
            return builder.getOrCreate()
    except (Py4JError, PySparkException, ConnectionError) as error:
        raise NoSpark(f"Spark did not start: {java_cause(str(error))}") from error


@contextmanager
def _own_interrupts() -> Iterator[None]:
    """Put back a handler of Ctrl-C that PySpark replaces when it starts.

    PySpark's own raises KeyboardInterrupt at any moment, also in the middle of a call to Java.
    In a program without a handler it stays: it cancels the jobs that run.
    """
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        is_main = threading.current_thread() is threading.main_thread()
        if is_main and before not in {None, signal.default_int_handler}:
            signal.signal(signal.SIGINT, before)


def _end_quietly(spark: SparkSession) -> None:
    """Keep a PySpark thread from printing a traceback when Java ends; others report it."""
    server: Any = spark.sparkContext._accumulatorServer
    original = server.handle_error

    def handle_error(request: object, address: object) -> None:
        if not isinstance(sys.exception(), EOFError | ConnectionError):
            original(request, address)

    server.handle_error = handle_error
