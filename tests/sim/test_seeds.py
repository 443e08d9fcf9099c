"""Whole runs of the simulator: a seed that fails says how to see it again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.sim.__main__ import replay_command
from ottla.sim.exchange import Violation
from ottla.sim.simulation import DEFAULT_STEPS, Simulation

FAST_SEEDS = range(10)
SEEDS_PER_TEST = 10
SLOW_SEEDS = range(100, 400, SEEDS_PER_TEST)


def play(seed: int, steps: int = DEFAULT_STEPS) -> Simulation:
    simulation = Simulation(seed, steps)
    try:
        simulation.run()
    except Violation as violation:
        lines = "\n".join(simulation.trace.lines)
        pytest.fail(
            f"{lines}\nseed {seed}: {violation}\nreplay: {replay_command(seed, steps)}",
            pytrace=violation.__cause__ is not None,
        )
    return simulation


@pytest.mark.parametrize("seed", FAST_SEEDS)
def test_a_seed_breaks_no_promise(seed: int) -> None:
    play(seed)


@pytest.mark.slow
@pytest.mark.parametrize("first", SLOW_SEEDS)
def test_many_seeds_break_no_promise(first: int) -> None:
    for seed in range(first, first + SEEDS_PER_TEST):
        play(seed)


def test_the_runs_together_do_everything_that_can_be_done() -> None:
    """A simulator that no longer crashes, fills or asks anything would pass all other tests."""
    counts = play(0).counts
    for seed in range(1, 12):
        counts += play(seed, 500).counts
    assert {"end: kill", "end: power", "end: clean", "malformed"} <= set(counts)
    for name in (
        "Produce",
        "Fetch",
        "ListOffsets",
        "Metadata",
        "CreateTopics",
        "DeleteTopics",
        "CreatePartitions",
        "DeleteRecords",
        "IncrementalAlterConfigs",
        "DescribeConfigs",
        "InitProducerId",
        "OffsetForLeaderEpoch",
    ):
        assert counts[f"{name}Request"] > 3, name


def test_a_seed_is_one_run() -> None:
    assert play(3).trace.hash == play(3).trace.hash
    assert play(3).trace.hash != play(4).trace.hash


def test_a_seed_is_the_same_run_in_every_process() -> None:
    """Nothing may depend on the order of sets of strings, which differs from process to process."""
    code = "from ottla.sim.simulation import Simulation; print(Simulation(5, 600).run())"
    source = str(Path(__file__).parents[2] / "src")
    hashes = set()
    for hash_seed in ("1", "2", "3"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": source}
        run = subprocess.run(
            [sys.executable, "-c", code],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        hashes.add(run.stdout)
    assert len(hashes) == 1


def test_a_failing_seed_says_how_to_replay_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that acknowledges what it does not write is found out, and the seed named."""
    from ottla.log.log import Log
    from ottla.sim import __main__ as command

    def forget(log: Log) -> None:
        log._pending.clear()

    monkeypatch.setattr(Log, "commit", forget)
    monkeypatch.setattr(sys, "argv", ["ottla.sim", "--seed", "1", "--steps", "900"])
    assert command.main() == 1
    assert "python -m ottla.sim --seed 1 --steps 900 --trace" in capsys.readouterr().err
