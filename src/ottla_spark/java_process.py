"""Starts the Java process of Spark, and makes sure that it ends.

PySpark's own start leaves a Java process behind if it is interrupted: it removes the directory
that Java is about to write its port to, and Java then waits forever. Here the process is in a
process group of its own, a stop is noticed while Java starts, and whatever goes wrong ends the
whole group.

With a log file, nothing that Java prints reaches the terminal, except lines of people's own
functions and warnings of Python workers. Everything is in the file.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import struct
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ottla_spark.java import NoSpark

if TYPE_CHECKING:
    from typing import IO

    from py4j.java_gateway import JavaGateway

POLL_S = 0.05
END_TIMEOUT_S = 5.0
KEPT_LINES = 200
_LONGEST = 400
_FRAME = re.compile(r"\s+at [\w.$/<>@-]+\(|\s*\.\.\. \d+ more|\s*Suppressed: |Caused by: ")
_NOISE = re.compile(
    r"(WARNING|NOTE): |Picked up \w+: |Using Spark's default log4j profile|.* VM warning: |#$"
)
_UNCAUGHT = 'Exception in thread "'
"""Java's report of a thread that has failed. If it matters, the command has its own message."""
_RAISED = re.compile(
    r'(?:Exception in thread "[^"]*" )?(?:[\w$]+\.)+[\w$]*(?:Exception|Error): (.+)'
)


class JavaProcess:
    """One running Java process of Spark, and the thread that reads what it prints."""

    def __init__(self, command: list[str], variables: Mapping[str, str], log: Path | None) -> None:
        self._said: deque[str] = deque(maxlen=KEPT_LINES)
        self._has_started = False
        output = None if log is None else subprocess.PIPE
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,  # Java ends when this is closed
            stdout=output,
            stderr=None if log is None else subprocess.STDOUT,
            env=dict(variables),
            process_group=0,  # Ctrl-C on a terminal does not reach it
        )
        self._reader: threading.Thread | None = None
        if log is not None:
            self._reader = threading.Thread(target=self._read, args=(log,), daemon=True)
            self._reader.start()

    def has_ended(self) -> bool:
        """Return whether the process has ended by itself."""
        return self._process.poll() is not None

    def started(self) -> None:
        """Forward what the process prints from now on, except Java's own messages."""
        self._has_started = True

    def reason(self) -> str:
        """Return why a process that has ended could not start, in a sentence."""
        if self._reader is not None:
            self._reader.join(END_TIMEOUT_S)
        return start_failure(list(self._said), self._process.returncode)

    def end(self) -> None:
        """End the process and its children, by force if they do not end in time."""
        try:
            self._send(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(END_TIMEOUT_S)
        finally:  # also if a second Ctrl-C comes
            self._send(signal.SIGKILL)
            self._process.wait()
            if self._process.stdin is not None:
                self._process.stdin.close()

    def _send(self, number: signal.Signals) -> None:
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)

    def _read(self, log: Path) -> None:
        stream: IO[bytes] | None = self._process.stdout
        assert stream is not None
        with stream, log.open("a", errors="replace") as file:
            for raw in stream:
                line = raw.decode(errors="replace")
                file.write(line)
                file.flush()
                if not self._has_started:
                    self._said.append(line)
                elif not is_noise(line) and not line.startswith(_UNCAUGHT):
                    sys.stderr.write(line)


def is_noise(line: str) -> bool:
    """Return whether a line of Java or of a Python worker means nothing to people."""
    return bool(_FRAME.match(line) or _NOISE.match(line) or not line.strip())


def start_failure(lines: list[str], code: int | None) -> str:
    """Return the one line that says why Java did not start."""
    told = [line.strip().removeprefix("# ") for line in lines if not is_noise(line)]
    raised = [found[1] for line in told if (found := _RAISED.match(line))]
    first = " ".join(told[:2] if told and told[0].startswith("Error occurred") else told[:1])
    reason = (raised or [first])[0] or _exit_words(code)
    return reason[:_LONGEST].rstrip(".")


def _exit_words(code: int | None) -> str:
    if code is not None and code < 0:
        return f"it was killed by {signal.Signals(-code).name}"
    return f"it ended with exit code {code}, without a message"


def start_gateway(
    settings: Mapping[str, str], *, log: Path | None, stop: threading.Event | None
) -> tuple[JavaProcess, JavaGateway]:
    """Start Java with these settings and connect to it.

    Raise NoSpark if it does not start, and KeyboardInterrupt if `stop` is set meanwhile. In both
    cases no process is left.
    """
    from pyspark.find_spark_home import _find_spark_home

    command = [os.path.join(_find_spark_home(), "bin", "spark-submit")]
    for name, value in settings.items():
        command += ["--conf", f"{name}={value}"]
    command += shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))
    with tempfile.TemporaryDirectory(prefix="ottla-spark-") as directory:
        answer = Path(directory, "gateway")
        variables = os.environ | {
            "SPARK_CONNECT_MODE": "0",
            "_PYSPARK_DRIVER_CONN_INFO_PATH": str(answer),
        }
        process: JavaProcess | None = None
        try:
            with _signals_later():
                process = JavaProcess(command, variables, log)
            _await_answer(process, answer, stop)
            gateway = _connect(answer)
        except BaseException:
            if process is not None:
                process.end()
            raise
    process.started()
    gateway.proc = process  # as PySpark does: Java ends when nobody holds the process any more
    return process, gateway


@contextlib.contextmanager
def _signals_later() -> Iterator[None]:
    """Handle Ctrl-C and SIGTERM after this block, so that a started process is always known."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    caught: list[int] = []
    before = {
        number: signal.signal(number, lambda number, _: caught.append(number))
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
    for signalled in caught[:1]:
        signal.raise_signal(signalled)


def _await_answer(process: JavaProcess, answer: Path, stop: threading.Event | None) -> None:
    waiting = stop or threading.Event()
    while not answer.is_file():
        if process.has_ended():
            raise NoSpark(f"Spark's Java process did not start: {process.reason()}")
        if waiting.wait(POLL_S):
            raise KeyboardInterrupt


def _connect(answer: Path) -> JavaGateway:
    """Connect to the process that wrote its port and a secret to the file `answer`."""
    from pyspark import java_gateway

    content = answer.read_bytes()
    port, length = struct.unpack_from(">ii", content)
    found = {
        "PYSPARK_GATEWAY_PORT": str(port),
        "PYSPARK_GATEWAY_SECRET": content[8 : 8 + length].decode(),
    }
    connect: Callable[[], JavaGateway] = java_gateway.launch_gateway
    os.environ.update(found)
    try:
        return connect()  # with these variables it starts no process
    finally:
        for name in found:
            del os.environ[name]
