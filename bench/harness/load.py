"""Runs one load generator and reads the broker's CPU time during its measurement."""

from __future__ import annotations

import json
import subprocess
import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from harness.problem import BenchError
from harness.target import Target

HARD_LIMIT_S = 600.0
"""Generators end by themselves long before; this catches one that does not."""


def run_load(
    program: Path,
    target: Target,
    *arguments: str | float,
    on_begin: Callable[[], None] = lambda: None,
    launcher: Sequence[str] = (),
) -> dict[str, float]:
    """Return the report of the generator, with `cpu_s`, the broker's CPU seconds.

    `on_begin` is called when the measurement begins. `launcher` is the command that runs the
    generator if it is not a program by itself.
    """
    command = [*launcher, str(program), *(str(argument) for argument in arguments)]
    with tempfile.TemporaryFile("w+", errors="replace") as errors:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, stdin=subprocess.DEVNULL, text=True
        )
        watchdog = threading.Timer(HARD_LIMIT_S, process.kill)
        watchdog.start()
        try:
            report = _follow(process, target, on_begin)
        finally:
            watchdog.cancel()
            process.kill()
            code = process.wait()
        if code != 0 or "cpu_s" not in report:
            errors.seek(0)
            reason = errors.read().strip()[-600:] or "it said nothing"
            raise BenchError(f"{program.name.split('-')[0]}, exit code {code}: {reason}")
    return report


def _follow(
    process: subprocess.Popen[str], target: Target, on_begin: Callable[[], None]
) -> dict[str, float]:
    assert process.stdout is not None
    cpu_at: dict[str, float] = {}
    report: dict[str, float] = {}
    for line in process.stdout:
        event = line.strip()
        if event in ("begin", "end"):
            cpu_at[event] = target.cpu_seconds()
            if event == "begin":
                on_begin()
        else:
            report = {**json.loads(event), "cpu_s": cpu_at["end"] - cpu_at["begin"]}
    process.wait()
    return report
