"""Runs seeds of a cluster and tells how they went: a readable trace of the ones that fail."""

from __future__ import annotations

from collections import deque
from typing import Final

from ottla.sim.cluster_run.profile import ClusterProfile
from ottla.sim.cluster_run.run import ClusterRun
from ottla.sim.cluster_run.shrink import Variant
from ottla.sim.network.exchange import Violation
from ottla.sim.trace import Trace

_EVENTS: Final = 60
"""How many faults and changes of leaders are shown of a seed that failed."""


def run_seed(
    seed: int,
    seconds: float,
    *,
    profile: ClusterProfile | None = None,
    replay: str = "",
    shows_all: bool = False,
) -> tuple[bool, str]:
    """Run a seed, with its own profile or a given one; return whether it passed, and a report.

    `replay` is the command that shows the run again, if it is not only the seed.
    """
    events: deque[str] = deque(maxlen=_EVENTS)

    def take(line: str) -> None:
        if shows_all:
            print(line)
        if "#" not in line and "  -> " not in line:
            events.append(line)

    trace = Trace(take)
    try:
        run = ClusterRun(seed, seconds, trace, profile)
        run.run()
    except Violation as violation:
        command = replay or replay_command(seed, seconds)
        last = list(trace.lines)[-20:]
        return False, _failure(f"seed {seed}: {violation}", violation, list(events), last, command)
    requests = sum(count for name, count in run.counts.items() if name.endswith("Request"))
    faults = run.counts["faults"]
    return True, f"seed {seed}: {trace.hash} {requests} requests, {faults} faults"


def replay_command(seed: int, seconds: float) -> str:
    """Return the command that shows a run again."""
    return Variant(seed, seconds).command()


def run_variant(variant: Variant, *, shows_all: bool = False) -> tuple[bool, str]:
    """Run a seed of a kind, or with less in it; return whether it passed, and a report."""
    return run_seed(
        variant.seed,
        variant.seconds,
        profile=variant.profile(),
        replay=variant.command(),
        shows_all=shows_all,
    )


def failure_of(variant: Variant) -> str | None:
    """Run a seed with less in it; return how it failed, None if it passed."""
    try:
        ClusterRun(variant.seed, variant.seconds, profile=variant.profile()).run()
    except Violation as violation:
        return str(violation)
    return None


def _failure(
    summary: str, violation: Violation, events: list[str], last: list[str], command: str
) -> str:
    lines = ["What went wrong in the cluster, and who led what:", *events]
    lines += ["The last requests of clients:", *last]
    if violation.__cause__ is not None:
        from traceback import format_exception

        lines += ["".join(format_exception(violation.__cause__)).rstrip()]
    lines += [summary, f"replay: {command}"]
    return "\n".join(lines)
