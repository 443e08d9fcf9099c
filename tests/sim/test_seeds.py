"""The node that serves production, in a simulated world, over hundreds of seeds.

A seed that fails says how to see it again: python -m ottla.sim --seed N --steps M --trace.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable

import pytest

from ottla.log.log import Log
from ottla.log.state.producer_states import ProducerStates
from ottla.log.state.producer_table import ProducerBatch
from ottla.sim import __main__ as command
from ottla.sim.__main__ import replay_command
from ottla.sim.network.exchange import Violation
from ottla.sim.simulation import Simulation

STEPS = 500
QUICK_SEEDS = range(10)
SEEDS = range(10, 310)
PER_TEST = 20
PLANTED_SEEDS = range(40)
ASKED = (
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
)


def run(seed: int) -> str:
    """Run one simulated life of a broker; return the hash of everything that happened."""
    try:
        return Simulation(seed, STEPS).run()
    except Violation as violation:
        pytest.fail(f"seed {seed}: {violation}\nreplay: {replay_command(seed, STEPS)}")


@pytest.mark.parametrize("seed", QUICK_SEEDS)
def test_a_seed(seed: int) -> None:
    run(seed)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(SEEDS.start, SEEDS.stop, PER_TEST))
def test_seeds(first: int) -> None:
    for seed in range(first, first + PER_TEST):
        run(seed)


@pytest.mark.parametrize("seed", [3, 5])
def test_a_seed_always_makes_the_same_life(seed: int) -> None:
    assert run(seed) == run(seed)


def test_a_seed_makes_the_same_life_in_every_process() -> None:
    """Nothing may depend on the order of sets of strings, which differs between processes."""
    code = f"from ottla.sim.simulation import Simulation; print(Simulation(5, {STEPS}).run())"
    hashes = set()
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        done = subprocess.run(
            [sys.executable, "-c", code],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        hashes.add(done.stdout.strip())
    assert hashes == {run(5)}


def test_the_lives_together_hold_everything_that_can_happen() -> None:
    """A simulator that no longer crashes or asks anything would pass all other tests."""
    counts: Counter[str] = Counter()
    for seed in range(16):
        simulation = Simulation(seed, STEPS)
        simulation.run()
        counts += simulation.counts
    assert {"end: kill", "end: power", "end: clean", "malformed"} <= set(counts)
    for name in ASKED:
        assert counts[f"{name}Request"] > 3, name


@pytest.mark.interpreted
def test_a_failing_seed_says_how_to_see_it_again(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lose_every_third_write(monkeypatch)
    monkeypatch.setattr(sys, "argv", ["ottla.sim", "--seed", "1", "--seeds", "5"])
    assert command.main() == 1
    assert "replay: python -m ottla.sim --seed" in capsys.readouterr().err


def test_seeds_differ() -> None:
    assert len({run(seed) for seed in range(5)}) == 5


def lose_every_third_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """Acknowledge what was not written."""
    write_queued, count = Log.write_queued, [0]

    def losing(self: Log) -> None:
        count[0] += 1
        if count[0] % 3 == 0 and "metadata" not in self.directory:
            self.discard_queued()
        else:
            write_queued(self)

    monkeypatch.setattr(Log, "write_queued", losing)


def accept_duplicates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget that a batch was there before."""

    def forgetful(self: ProducerStates, *batch: int) -> ProducerBatch | None:
        return None

    monkeypatch.setattr(ProducerStates, "check", forgetful)


@pytest.mark.interpreted
@pytest.mark.parametrize("plant", [lose_every_third_write, accept_duplicates])
def test_a_planted_fault_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    for seed in PLANTED_SEEDS:
        try:
            Simulation(seed, STEPS).run()
        except (Violation, AssertionError):
            return
    pytest.fail("nobody noticed")
