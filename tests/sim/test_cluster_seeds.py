"""Whole clusters in a simulated world: seeds, and planted bugs that they must find.

A seed that fails says how to see it again: ottla sim --seed N --seconds S --trace.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter

import pytest

from ottla.sim.cluster_run.profile import (
    busy_profile,
    cleaned_profile,
    dark_profile,
    grouped_profile,
    profile_of,
    transactional_profile,
    voters_profile,
)
from ottla.sim.cluster_run.report import replay_command, run_seed
from ottla.sim.cluster_run.run import ClusterRun
from tests.sim.test_planted_bugs import acknowledge_what_is_written

pytestmark = pytest.mark.timeout(600)
SECONDS = 4
SEEDS = range(40)
PER_TEST = 4


@pytest.mark.parametrize("first", range(SEEDS.start, SEEDS.stop, PER_TEST))
def test_seeds(first: int) -> None:
    for seed in range(first, first + PER_TEST):
        passed, report = run_seed(seed, SECONDS)
        assert passed, report


def hashes_of_all_kinds() -> str:
    """Run a seed of each kind of run; return the hashes of their traces."""
    kinds = (
        profile_of,
        busy_profile,
        grouped_profile,
        dark_profile,
        cleaned_profile,
        voters_profile,
    )
    return " ".join(ClusterRun(2, 2, profile=kind(2)).run() for kind in kinds)


def test_a_seed_is_the_same_run_in_every_process() -> None:
    code = "from tests.sim.test_cluster_seeds import hashes_of_all_kinds as h; print(h())"
    hashes = {hashes_of_all_kinds()}
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
    assert len(hashes) == 1


def test_runs_hold_what_can_happen() -> None:
    """A simulator in which nothing goes wrong would pass all other tests."""
    counts: Counter[str] = Counter()
    for seed in range(4):
        run = ClusterRun(seed, SECONDS)
        run.run()
        counts += run.counts
    assert counts["faults"] > 20
    assert counts["ends"] > 3
    for name in ("Produce", "Fetch", "ListOffsets", "CreateTopics", "InitProducerId"):
        assert counts[f"{name}Request"] > 3, name


def test_administrators_and_groups_do_what_they_can() -> None:
    counts: Counter[str] = Counter()
    for seed in range(4):
        for kind in (busy_profile, grouped_profile):
            run = ClusterRun(seed, SECONDS, profile=kind(seed))
            run.run()
            counts += run.counts
    for name in (
        "DeleteTopics",
        "CreatePartitions",
        "AlterPartitionReassignments",
        "ElectLeaders",
        "IncrementalAlterConfigs",
        "JoinGroup",
        "SyncGroup",
        "ConsumerGroupHeartbeat",
        "OffsetCommit",
        "OffsetFetch",
    ):
        assert counts[f"{name}Request"], name


def test_transactions_have_all_their_requests_and_ends() -> None:
    counts: Counter[str] = Counter()
    ends: Counter[bool | None] = Counter()
    for seed in range(5):
        kind = cleaned_profile if seed < 2 else transactional_profile
        run = ClusterRun(seed, SECONDS + 1, profile=kind(seed))
        run.run()
        counts += run.counts
        ends += Counter(each.committed for each in run.transactions.transactions)
    for name in ("AddPartitionsToTxn", "AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn"):
        assert counts[f"{name}Request"], name
    assert ends[True] > 20
    assert ends[False] > 3


def test_voters_are_added_and_removed() -> None:
    counts: Counter[str] = Counter()
    for seed in range(6):
        run = ClusterRun(seed, SECONDS, profile=voters_profile(seed))
        run.run()
        counts += run.counts
    assert counts["AddRaftVoterRequest"]
    assert counts["RemoveRaftVoterRequest"]


def test_a_failing_seed_says_how_to_see_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    acknowledge_what_is_written(monkeypatch)
    reports = [run_seed(seed, SECONDS) for seed in range(4)]
    report = next(report for passed, report in reports if not passed)
    assert "replay: ottla sim --seed" in report
    assert "was acknowledged" in report
    assert replay_command(3, 4.0) == "ottla sim --seed 3 --seconds 4 --trace"
