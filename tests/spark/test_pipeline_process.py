"""`ottla pipeline run` as a process: killed, restarted, stopped."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.usefixtures("shared_java_classes")
PIPELINE = """\
name: numbers
trigger: 100ms
sources:
  numbers:
    files: in
    format: json
    schema: n long
    stream: true
    options: {maxFilesPerTrigger: 1}
sinks:
  out: {from: numbers, table: "parquet:out"}
"""
FILES = 6
ROWS_A_FILE = 10
ANSWER_TIMEOUT_S = 100


@pytest.fixture
def process(tmp_path: Path) -> Iterator[list[subprocess.Popen[str]]]:
    """Yield processes of the test; none outlives it."""
    started: list[subprocess.Popen[str]] = []
    yield started
    for one in started:
        one.kill()
        one.wait(ANSWER_TIMEOUT_S)
        assert one.stdout is not None
        one.stdout.close()


def start(directory: Path, started: list[subprocess.Popen[str]]) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "ottla.cli.main", "pipeline", "run"]
    running = subprocess.Popen(
        [*command, str(directory / "numbers.yaml"), "--master", "local[1]", "--json"],
        stdout=subprocess.PIPE,
        text=True,
    )
    started.append(running)
    return running


def batches(running: subprocess.Popen[str]) -> Iterator[dict[str, object]]:
    assert running.stdout is not None
    for line in running.stdout:
        yield json.loads(line)


def add_files(directory: Path, files: range) -> None:
    for file in files:
        numbers = range(file * ROWS_A_FILE, (file + 1) * ROWS_A_FILE)
        text = "".join(f'{{"n": {number}}}\n' for number in numbers)
        (directory / f"{file:02}.json").write_text(text)


@pytest.mark.timeout(240)
def test_a_killed_pipeline_continues_and_a_stopped_one_exits_with_0(
    spark: SparkSession, tmp_path: Path, process: list[subprocess.Popen[str]]
) -> None:
    (tmp_path / "numbers.yaml").write_text(PIPELINE)
    (tmp_path / "in").mkdir()
    add_files(tmp_path / "in", range(FILES // 2))
    first = start(tmp_path, process)
    next(batches(first))
    first.send_signal(signal.SIGKILL)
    assert first.wait(ANSWER_TIMEOUT_S) == -signal.SIGKILL

    add_files(tmp_path / "in", range(FILES // 2, FILES))
    second = start(tmp_path, process)
    for event in batches(second):
        if event["batch"] == FILES - 1:
            second.send_signal(signal.SIGTERM)
            break
    *_, summary = batches(second)
    assert summary["event"] == "summary"
    assert second.wait(ANSWER_TIMEOUT_S) == 0
    rows = spark.read.parquet(str(tmp_path / "out")).collect()
    assert sorted(row.n for row in rows) == list(range(FILES * ROWS_A_FILE))


@pytest.mark.timeout(240)
def test_a_failed_query_prints_one_message_and_names_a_file(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "f.py").write_text(
        "from pyspark.sql.functions import udf\n"
        "def f(rows):\n    return rows.select(udf(lambda n: 1 // n, 'long')('n').alias('n'))\n"
    )
    steps = 'steps:\n  f: {python: "f.py:f", from: numbers}\nsinks:\n'
    text = PIPELINE.replace("sinks:\n", steps).replace("from: numbers,", "from: f,")
    (tmp_path / "numbers.yaml").write_text(text)
    (tmp_path / "in").mkdir()
    add_files(tmp_path / "in", range(1))
    command = [sys.executable, "-m", "ottla.cli.main", "pipeline", "run", "numbers.yaml", "--once"]
    ran = subprocess.run(
        [*command, "--master", "local[1]"],
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=ANSWER_TIMEOUT_S,
        check=False,
    )
    assert ran.returncode == 1
    assert len(ran.stderr.splitlines()) == 2, ran.stderr
    message, where = ran.stderr.splitlines()
    assert message == "ottla: sinks.out: ZeroDivisionError: integer division or modulo by zero"
    assert "\tat org.apache.spark" in Path(where.rpartition(" ")[2]).read_text()
