"""The start of Spark's Java process, with scripts in place of Java."""

from __future__ import annotations

import os
import signal
import threading
from functools import partial
from pathlib import Path

import psutil
import pytest

from ottla_spark.java import NoSpark
from ottla_spark.java_process import JavaProcess, is_noise, start_failure, start_gateway
from tests.harness.deadline import eventually

PATIENCE_S = 20


@pytest.fixture
def spark_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a directory whose spark-submit a test writes."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    return tmp_path


def submit(home: Path, script: str) -> None:
    program = home / "bin" / "spark-submit"
    program.write_text(f"#!/bin/sh\n{script}")
    program.chmod(0o755)


def test_a_process_that_ends_at_its_start_says_why_in_one_line(spark_home: Path) -> None:
    log = spark_home / "log"
    submit(
        spark_home,
        "echo 'NOTE: Picked up JDK_JAVA_OPTIONS: -Xss4m' >&2\n"
        "echo 'Exception in thread \"main\" org.apache.spark.SparkException: no such master.' >&2\n"
        "echo '\tat org.apache.spark.Main.main(Main.scala:1)' >&2\nexit 1\n",
    )
    with pytest.raises(NoSpark, match=r"did not start: no such master$"):
        start_gateway({"spark.a": "b"}, log=log, stop=None)
    assert "Main.scala" in log.read_text()


def test_a_stop_during_the_start_leaves_no_process(
    spark_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The script has a child, as spark-submit has; both ignore the first signal."""
    pids = spark_home / "pids"
    submit(
        spark_home,
        f"trap '' TERM\nsh -c 'trap \"\" TERM; echo $$ >> {pids}; while :; do sleep 0.1; done' &\n"
        f"echo $$ >> {pids}\nwait\n",
    )
    stop = threading.Event()

    def stop_when_both_run() -> None:
        eventually(lambda: pids.exists() and len(pids.read_text().split()) == 2, "two", PATIENCE_S)
        stop.set()

    thread = threading.Thread(target=stop_when_both_run)
    thread.start()
    monkeypatch.setattr("ottla_spark.java_process.END_TIMEOUT_S", 0.1)
    with pytest.raises(KeyboardInterrupt):
        start_gateway({}, log=spark_home / "log", stop=stop)
    thread.join()
    for pid in map(int, pids.read_text().split()):
        eventually(partial(_has_ended, pid), f"the end of {pid}", PATIENCE_S)


def _has_ended(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def test_a_signal_while_the_process_is_created_ends_it(
    spark_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit(spark_home, "exec sleep 100\n")
    created: list[JavaProcess] = []
    create = JavaProcess.__init__

    def interrupted(self: JavaProcess, *words: object) -> None:
        os.kill(os.getpid(), signal.SIGINT)  # before the process is known
        create(self, *words)  # type: ignore[arg-type]
        created.append(self)

    monkeypatch.setattr(JavaProcess, "__init__", interrupted)
    with pytest.raises(KeyboardInterrupt):
        start_gateway({}, log=spark_home / "log", stop=None)
    assert created[0].has_ended()


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (
            ["OpenJDK 64-Bit Server VM warning: INFO: commit_memory", "#", "# No memory left."],
            "No memory left",
        ),
        (
            ["Error occurred during initialization of VM", "Too small maximum heap"],
            "Error occurred during initialization of VM Too small maximum heap",
        ),
        (["Unrecognized option: -x", "Error: Could not create"], "Unrecognized option: -x"),
        ([], "it was killed by SIGKILL"),
    ],
)
def test_the_reason_of_a_failed_start(lines: list[str], reason: str) -> None:
    assert start_failure(lines, -9) == reason


@pytest.mark.parametrize(
    ("line", "noise"),
    [
        ("WARNING: Using incubator modules: jdk.incubator.vector\n", True),
        ("\tat org.apache.spark.Main$.main(Main.scala:1)\n", True),
        ("\t... 18 more\n", True),
        ("the offsets of this query are not committed to group x\n", False),
        ("a line of a person's function\n", False),
    ],
)
def test_only_lines_for_people_reach_the_terminal(line: str, noise: bool) -> None:
    assert is_noise(line) is noise


def test_a_thread_of_java_that_ends_is_told_in_the_log_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    uncaught = 'Exception in thread "stream execution thread" java.lang.StackOverflowError'
    go, log = tmp_path / "go", tmp_path / "log"
    log.touch()
    script = f"until [ -e {go} ]; do sleep 0.01; done; echo '{uncaught}'; echo for people"
    process = JavaProcess(["/bin/sh", "-c", script], {"PATH": os.environ["PATH"]}, log)
    try:
        process.started()
        go.touch()
        eventually(lambda: "for people" in log.read_text(), "the last line", PATIENCE_S)
    finally:
        process.end()
    process.reason()  # waits until everything has been read
    assert uncaught in log.read_text()
    assert capsys.readouterr().err == "for people\n"
