"""Loads and pipelines that are stopped while Spark starts: no Java process is left."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from functools import partial
from pathlib import Path

import psutil
import pytest

from tests.harness.deadline import Deadline, eventually
from tests.harness.process import COMMAND
from tests.support.spark_fixtures import MakeTopic, Produce

pytestmark = pytest.mark.usefixtures("shared_java_classes")
PATIENCE_S = 60
ATTEMPTS = 20
"""Some moments last for milliseconds. A start in which one was missed is begun again."""


def children(process: subprocess.Popen[str]) -> list[psutil.Process]:
    return list(psutil.Process(process.pid).children(recursive=True))


LAUNCHER = "org.apache.spark.launcher.Main"
JAVA = "org.apache.spark.deploy.SparkSubmit"
MOMENTS = ("bin/spark-submit", LAUNCHER, JAVA)


def runs(word: str, process: subprocess.Popen[str], seen: dict[int, psutil.Process]) -> bool:
    """Return whether a child has this word in its command line; remember all children."""
    for child in children(process):
        seen[child.pid] = child
        try:
            command = child.cmdline()
            # The launcher and the script that runs it get the name as an argument.
            is_java = bool(command) and command[0].endswith("java") and LAUNCHER not in command
            is_early = word == JAVA and not is_java
            if any(part.endswith(word) for part in command) and not is_early:
                return True
        except psutil.NoSuchProcess:
            continue
    return False


def is_caught(moment: str, process: subprocess.Popen[str], seen: dict[int, psutil.Process]) -> bool:
    """Wait for a moment of the start. Return False if it was missed: a later one is there."""
    deadline = Deadline(PATIENCE_S)
    later = MOMENTS[MOMENTS.index(moment) + 1 :]
    while True:
        if runs(moment, process, seen):
            return True
        if process.poll() is not None or any(runs(word, process, seen) for word in later):
            return False
        assert not deadline.passed, f"not within {PATIENCE_S} s: {moment}"
        time.sleep(0.001)


def has_ended(process: psutil.Process) -> bool:
    return not process.is_running() or bool(process.status() == psutil.STATUS_ZOMBIE)


@pytest.mark.parametrize(
    ("moment", "number"),
    [
        ("bin/spark-submit", signal.SIGINT),
        (LAUNCHER, signal.SIGTERM),
        (JAVA, signal.SIGINT),
    ],
)
def test_a_signal_during_the_start_leaves_no_process(
    bootstrap_servers: str,
    topic: MakeTopic,
    produce: Produce,
    tmp_path: Path,
    moment: str,
    number: signal.Signals,
) -> None:
    name = topic()
    produce(name, 1)
    words = [name, "--to", f"parquet:{tmp_path}/table", "--master", "local[1]"]
    command = [*COMMAND, "load", *words, "-b", bootstrap_servers]
    for _ in range(ATTEMPTS):
        seen: dict[int, psutil.Process] = {}
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as running:
            try:
                caught = is_caught(moment, running, seen)
                seen |= {child.pid: child for child in children(running)}
                running.send_signal(number)
                said, _ = running.communicate(timeout=PATIENCE_S)
            finally:
                running.kill()
        assert running.returncode == 130, said
        assert "Traceback" not in said
        for process in seen.values():
            eventually(partial(has_ended, process), f"the end of {process}", PATIENCE_S)
        if caught:
            return
    pytest.fail(f"{moment} was never seen")


def test_a_signal_while_java_starts_spark_is_not_kept_waiting(
    bootstrap_servers: str, topic: MakeTopic, produce: Produce, tmp_path: Path
) -> None:
    name = topic()
    produce(name, 1)
    words = [name, "--to", f"parquet:{tmp_path}/table", "--master", "local[1]"]
    with subprocess.Popen(
        [*COMMAND, "load", *words, "-b", bootstrap_servers],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "SPARK_LOCAL_DIRS": str(tmp_path / "local")},
    ) as running:
        try:
            # Spark makes this directory in the middle of its start.
            eventually(lambda: list(tmp_path.glob("local/blockmgr-*")), "a start", PATIENCE_S)
            seen = children(running)
            running.send_signal(signal.SIGINT)
            said, _ = running.communicate(timeout=PATIENCE_S)
        finally:
            running.kill()
    assert (running.returncode, "Traceback" in said) == (130, False), said
    assert not (tmp_path / "table").exists()
    for process in seen:
        eventually(partial(has_ended, process), f"the end of {process}", PATIENCE_S)


PIPELINE = """\
name: numbers
sources:
  numbers: {files: in, format: json, schema: n long, stream: true}
sinks:
  out: {from: numbers, table: "parquet:out"}
"""


@pytest.mark.parametrize(("option", "exit_code"), [("--always", 0), ("--once", 130)])
def test_a_pipeline_that_is_stopped_early_ends_as_one_that_is_stopped_later(
    tmp_path: Path, option: str, exit_code: int
) -> None:
    (tmp_path / "numbers.yaml").write_text(PIPELINE)
    (tmp_path / "in").mkdir()
    words = ["pipeline", "run", str(tmp_path / "numbers.yaml"), option, "--master", "local[1]"]
    with subprocess.Popen(
        [*COMMAND, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as running:
        seen: dict[int, psutil.Process] = {}
        try:
            eventually(partial(runs, JAVA, running, seen), "Java", PATIENCE_S)
            running.send_signal(signal.SIGTERM)
            said, _ = running.communicate(timeout=PATIENCE_S)
        finally:
            running.kill()
    assert running.returncode == exit_code, said
    assert said.splitlines()[-1] == "ottla: stopped before a query ran"
    assert not (tmp_path / "out").exists()
    for process in seen.values():
        eventually(partial(has_ended, process), f"the end of {process}", PATIENCE_S)
