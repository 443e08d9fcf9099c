"""Spark's classes, parsed once for all the Java processes of a run (class data sharing).

The session of the run notes what it loads. When the first test is about to start Java processes
of its own, that is written to an archive, which those processes map: each starts some seconds
sooner. Where there is no session yet, or no `jcmd`, they start as always.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

_VARIABLE = "JDK_JAVA_OPTIONS"
_QUIETLY = "-Xlog:disable -Xlog:all=error:stderr"  # what Java prints, Spark takes for its answer
_TIMEOUT_S = 60


@contextmanager
def noted() -> Iterator[None]:
    """Let Java processes that start in this context write an archive later."""
    before = os.environ[_VARIABLE]
    os.environ[_VARIABLE] = f"{before} -XX:+RecordDynamicDumpInfo {_QUIETLY}"
    try:
        yield
    finally:
        os.environ[_VARIABLE] = before


def share(archive: Path) -> None:
    """Have Java processes from now on use the classes of the session that runs."""
    for process in psutil.Process().children(recursive=True):
        command = process.cmdline()
        if any(word.endswith(".SparkSubmit") for word in command) and _dump(process, archive):
            os.environ[_VARIABLE] += f" -XX:SharedArchiveFile={archive} {_QUIETLY}"
            return


def _dump(java: psutil.Process, archive: Path) -> bool:
    tool = Path(java.exe()).with_name("jcmd")
    if not tool.is_file():
        return False
    command = [str(tool), str(java.pid), "VM.cds", "dynamic_dump", str(archive)]
    subprocess.run(command, capture_output=True, timeout=_TIMEOUT_S, check=False)
    return archive.is_file()
