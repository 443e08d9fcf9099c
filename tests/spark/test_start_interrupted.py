"""`ottla load` that is stopped while Spark starts: no Java process is left."""

from __future__ import annotations

import signal
import subprocess
from functools import partial
from pathlib import Path

import psutil
import pytest

from tests.harness.deadline import eventually
from tests.harness.process import COMMAND
from tests.support.spark_fixtures import MakeTopic, Produce

pytestmark = pytest.mark.usefixtures("shared_java_classes")
PATIENCE_S = 60


def children(process: subprocess.Popen[str]) -> list[psutil.Process]:
    return list(psutil.Process(process.pid).children(recursive=True))


LAUNCHER = "org.apache.spark.launcher.Main"
JAVA = "org.apache.spark.deploy.SparkSubmit"


def runs(word: str, process: subprocess.Popen[str], seen: dict[int, psutil.Process]) -> bool:
    """Return whether a child has this word in its command line; remember all children."""
    for child in children(process):
        seen[child.pid] = child
        try:
            command = child.cmdline()
            is_early = word == JAVA and LAUNCHER in command  # which gets the name as an argument
            if any(part.endswith(word) for part in command) and not is_early:
                return True
        except psutil.NoSuchProcess:
            continue
    return False


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
    seen: dict[int, psutil.Process] = {}
    with subprocess.Popen(
        [*COMMAND, "load", *words, "-b", bootstrap_servers],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as running:
        try:
            eventually(partial(runs, moment, running, seen), moment, PATIENCE_S)
            seen |= {child.pid: child for child in children(running)}
            running.send_signal(number)
            said, _ = running.communicate(timeout=PATIENCE_S)
        finally:
            running.kill()
    assert running.returncode == 130, said
    assert "Traceback" not in said
    for process in seen.values():
        eventually(partial(has_ended, process), f"the end of {process}", PATIENCE_S)
