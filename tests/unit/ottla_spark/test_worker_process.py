"""Spark's Python processes exit silently when their socket is closed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from ottla_spark import worker_process


def run(module: str, directory: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", worker_process.__file__, module, "one", "two"],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_module_runs_as_the_program_with_its_arguments(tmp_path: Path) -> None:
    tmp_path.joinpath("program.py").write_text("import sys; print(__name__, sys.argv[1:])")
    done = run("program", tmp_path)
    assert (done.returncode, done.stdout) == (0, "__main__ ['one', 'two']\n")


def test_a_closed_socket_is_silent(tmp_path: Path) -> None:
    text = "import socket\na, b = socket.socketpair()\nb.close()\na.sendall(b'bye')\n"
    tmp_path.joinpath("program.py").write_text(text)
    done = run("program", tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_other_failures_are_reported(tmp_path: Path) -> None:
    tmp_path.joinpath("program.py").write_text("raise ValueError('why')")
    done = run("program", tmp_path)
    assert done.returncode == 1
    assert "ValueError: why" in done.stderr
