"""Makes a failing seed smaller: fewer seconds, fewer kinds of faults and clients, fewer faults.

Every part of a run has a random generator of its own, so what is left mostly does what it did
before. A smaller run counts if it fails in the same way: with the same words, whatever the numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from re import sub
from typing import Any, NamedTuple

from ottla.sim.cluster_run.profile import MIXED, PROFILES, ClusterProfile

_CLIENTS = (
    "extra_brokers",
    "temporary_producers",
    "admins",
    "tier_admins",
    "classic_members",
    "consumer_members",
    "rivals",
    "copiers",
    "group_copiers",
)
_CLOCKS = "clock_rates"
_LENGTH = 40
"""How many characters of a violation say what kind of failure it is."""


class Variant(NamedTuple):
    """A run of a seed with less in it."""

    seed: int
    seconds: float
    without: tuple[str, ...] = ()
    """Names of faults, clients and clocks that are left out."""
    faults: int = -1
    """After how many faults nothing more goes wrong; -1 is no limit."""
    kind: str = MIXED
    """The name of its profile."""

    def profile(self) -> ClusterProfile:
        """Return the kind of this run. Raise ValueError if something unknown is left out."""
        profile = PROFILES[self.kind](self.seed)
        for name in self.without:
            if name in profile.weights:
                profile = profile._replace(weights={**profile.weights, name: 0.0})
            elif name in _CLIENTS:
                fewer: dict[str, Any] = {name: 0}
                profile = profile._replace(**fewer)
            elif name == _CLOCKS:
                profile = profile._replace(clock_rates={})
            else:
                raise ValueError(f"{name} is no part of a run")
        return profile._replace(most_faults=self.faults)

    def command(self) -> str:
        """Return the command that shows the run again."""
        parts = [f"ottla sim --seed {self.seed} --seconds {self.seconds:g}"]
        if self.kind != MIXED:
            parts.append(f"--profile {self.kind}")
        parts += [f"--without {name}" for name in self.without]
        if self.faults >= 0:
            parts.append(f"--faults {self.faults}")
        return " ".join((*parts, "--trace"))


Failure = Callable[[Variant], str | None]
"""Runs a variant; returns how it failed, None if it passed."""


def shrink(variant: Variant, failure_of: Failure, note: Callable[[str], None]) -> Variant:
    """Return the smallest variant that was found to fail like the given one.

    Raise ValueError if that does not fail.
    """
    first = failure_of(variant)
    if first is None:
        raise ValueError(f"seed {variant.seed} does not fail")
    kind = _kind(first)

    def fails(candidate: Variant) -> bool:
        failure = failure_of(candidate)
        is_same = failure is not None and _kind(failure) == kind
        note(f"{'fails' if is_same else 'passes'}: {candidate.command()}")
        return is_same

    for name in _parts(variant):
        candidate = variant._replace(without=(*variant.without, name))
        if fails(candidate):
            variant = candidate
    variant = _with_least_seconds(variant, fails)
    return _with_least_faults(variant, fails)


def _parts(variant: Variant) -> Iterator[str]:
    """Return what can be left out."""
    profile = variant.profile()
    yield from (name for name in _CLIENTS if getattr(profile, name))
    if profile.clock_rates:
        yield _CLOCKS
    yield from (name for name, weight in profile.weights.items() if weight > 0)


def _with_least_seconds(variant: Variant, fails: Callable[[Variant], bool]) -> Variant:
    seconds = variant.seconds
    while seconds > 1:
        seconds = max(seconds // 2, 1)
        candidate = variant._replace(seconds=seconds)
        if not fails(candidate):
            break
        variant = candidate
    return variant


def _with_least_faults(variant: Variant, fails: Callable[[Variant], bool]) -> Variant:
    """Find the smallest number of faults by halving the range."""
    low, high = -1, 64
    best = variant
    while high - low > 1:
        middle = (low + high) // 2
        candidate = variant._replace(faults=middle)
        if fails(candidate):
            best, high = candidate, middle
        else:
            low = middle
    return best


def _kind(failure: str) -> str:
    return sub(r"[0-9]+", "N", failure)[:_LENGTH]
