"""A signal at any moment of the start ends the broker, promptly and without a traceback."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.process import BrokerProcess, without_stalls

# Runs `ottla up`, and sends itself the signal when a function is entered. Only a process that
# handles the signal then goes on.
PROGRAM = """
import importlib, os, sys

signum, moment, how, *sys.argv[1:] = sys.argv[1:]
signum = int(signum)
module, _, path = moment.partition(":")

class Finalized:
    def __del__(self):
        os.kill(os.getpid(), signum)
        for _ in range(100):  # the signal is taken here
            pass

def patch():
    owner = importlib.import_module(module)
    *owners, name = path.split(".")
    for each in owners:
        owner = getattr(owner, each)
    original = getattr(owner, name)
    def interrupted(*args, **kwargs):
        if how == "in a finalizer":
            Finalized()
        else:
            os.kill(os.getpid(), signum)
        return original(*args, **kwargs)
    setattr(owner, name, interrupted)

from ottla.cli import main
let = main._let_interrupts_end_the_process
def let_and_patch():
    let()
    patch()
main._let_interrupts_end_the_process = let_and_patch
sys.exit(main.main())
"""
MOMENTS = {
    "parsing": "ottla.cli.serve:parse_plainly",
    "settings": "ottla.config.broker:BrokerConfig.from_properties",
    "binding": "ottla.server.broker_process:Broker._bind",
    "locking": "ottla.server.broker_process:lock_directory",
    "loading": "ottla.broker.node:Node.start",
    "opening": "ottla.server.reactor:Reactor.open",
    "signals": "signal:signal",
    "collecting": "gc:collect",
    "announcing": "ottla.cli.serve:announce",
    "serving": "ottla.server.broker_process:Broker.serve",
    "running": "ottla.server.reactor:Reactor.run",
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_ctrl_c_that_a_finalizer_would_swallow(moment: str, tmp_path: Path) -> None:
    check_end(signal.SIGINT, moment, "in a finalizer", tmp_path)


@pytest.mark.parametrize("moment", ["loading", "announcing"])
def test_ctrl_c_at_any_moment_of_the_start(moment: str, tmp_path: Path) -> None:
    check_end(signal.SIGINT, moment, "plainly", tmp_path)


@pytest.mark.parametrize("moment", ["loading", "signals", "announcing"])
def test_sigterm_at_any_moment_of_the_start(moment: str, tmp_path: Path) -> None:
    check_end(signal.SIGTERM, moment, "in a finalizer", tmp_path)


@pytest.mark.parametrize(
    "words",
    [
        ("load", "orders", "--to", "parquet:/nowhere", "-b", "127.0.0.1:1"),
        ("pipeline", "check", "no-such-file.yaml"),
    ],
    ids=["load", "pipeline"],
)
@pytest.mark.parametrize("moment", ["ottla.cli.app:run", "ottla.cli.spark_extra:need_spark"])
def test_ctrl_c_while_a_command_on_spark_is_imported(words: tuple[str, ...], moment: str) -> None:
    pytest.importorskip("pyspark")
    program = [sys.executable, "-c", PROGRAM, str(int(signal.SIGINT)), moment, "in a finalizer"]
    done = subprocess.run(
        [*program, *words], capture_output=True, text=True, timeout=20, check=False
    )
    assert done.returncode == -signal.SIGINT, done.stderr
    assert done.stdout + done.stderr == ""


def check_end(signum: signal.Signals, moment: str, how: str, directory: Path) -> None:
    data = directory / "data"
    done = subprocess.run(
        [
            *(sys.executable, "-c", PROGRAM, str(int(signum)), MOMENTS[moment], how),
            *("up", "--port", "0", "--data-dir", str(data)),
        ],
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    assert done.returncode in (-signum, 0), done.stderr
    assert without_stalls(done.stderr) == ""
    with BrokerProcess(data) as broker:  # and it starts the next time
        assert broker.running
