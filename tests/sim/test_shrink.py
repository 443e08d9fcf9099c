"""A failing seed is made smaller, and says how to see the small run."""

from __future__ import annotations

import pytest

from ottla.sim.cluster_run.profile import ALL, PROFILES, kind_of
from ottla.sim.cluster_run.report import failure_of, run_variant
from ottla.sim.cluster_run.shrink import Variant, shrink
from tests.sim.test_planted_bugs import acknowledge_what_is_written


def test_a_failing_seed_is_made_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    acknowledge_what_is_written(monkeypatch)
    tried: list[str] = []
    variant = Variant(0, 4)
    smallest = shrink(variant, failure_of, tried.append)
    assert smallest.faults == 0, "nothing has to go wrong for this bug to show"
    assert smallest.seconds < variant.seconds
    assert set(smallest.without) > {"kill"} or not variant.profile().weights["kill"]
    passed, report = run_variant(smallest)
    assert not passed
    assert "was acknowledged" in report
    assert f"replay: {smallest.command()}" in report
    assert "--faults 0" in smallest.command()
    assert any(line.startswith("passes") for line in tried) or smallest.seconds == 1


def test_a_seed_that_passes_cannot_be_made_smaller() -> None:
    with pytest.raises(ValueError, match="does not fail"):
        shrink(Variant(0, 1), lambda variant: None, lambda line: None)


def test_only_a_failure_of_the_same_kind_counts() -> None:
    def failure(variant: Variant) -> str:
        return "something else" if variant.without else "batch 7 is lost"

    assert shrink(Variant(1, 1), failure, lambda line: None).without == ()


def test_the_command_of_a_run_names_its_profile() -> None:
    variant = Variant(7, 4, ("kill",), kind="transactions")
    assert variant.profile().copiers == 2
    assert variant.command() == (
        "ottla sim --seed 7 --seconds 4 --profile transactions --without kill --trace"
    )


def test_seeds_take_all_profiles_in_turn() -> None:
    kinds = [kind_of(seed, ALL) for seed in range(len(PROFILES))]
    assert kinds == list(PROFILES)
    assert kind_of(3, "power") == "power"
    with pytest.raises(ValueError, match="moon"):
        kind_of(0, "moon")


def test_an_unknown_part_is_refused() -> None:
    with pytest.raises(ValueError, match="moon"):
        Variant(0, 1, ("moon",)).profile()
