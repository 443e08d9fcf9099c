"""Programs from outside PyPI, found or fetched by name, and a broker to use them on."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ottla.testing import Cluster

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "bench"))  # its harness knows how to get Kafka's jars
sys.path.insert(0, str(Path(__file__).parent))  # for what several of these tests start

Run = Callable[..., str]
TOOL_TIMEOUT_S = 120


def run_program(command: list[str], text: str | None = None) -> str:
    """Run a program and return its output. If it fails, so does the test, with the output."""
    done = subprocess.run(
        command, input=text, capture_output=True, text=True, timeout=TOOL_TIMEOUT_S, check=False
    )
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(data_dir=tmp_path / "data") as started:
        yield started


@pytest.fixture(scope="session")
def kcat() -> Run:
    """Run kcat; installed from Debian's packages when it is missing and that is possible."""
    if shutil.which("kcat") is None and shutil.which("apt-get") and os.geteuid() == 0:
        subprocess.run(["apt-get", "update", "-qq"], check=False, capture_output=True)
        subprocess.run(
            ["apt-get", "install", "-qq", "-y", "kcat"], check=False, capture_output=True
        )
    if shutil.which("kcat") is None:
        pytest.skip("kcat is missing: apt-get install kcat")
    return lambda *arguments, text=None: run_program(["kcat", *arguments], text)


@pytest.fixture(scope="session")
def kafka_tool() -> Run:
    """Run one of Apache Kafka's command-line classes."""
    from harness.jars import kafka_jars
    from harness.problem import BenchError

    try:
        jars, _ = kafka_jars(None)
    except BenchError as error:
        pytest.skip(str(error))
    java = ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", f"{jars}/*"]
    return lambda *arguments, text=None: run_program([*java, *arguments], text)
