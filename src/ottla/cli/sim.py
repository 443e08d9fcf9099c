"""`ottla sim`: run a whole cluster in virtual time, with faults, and check its promises."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from ottla.cli.errors import FAILED, OK, UsageError


def sim(
    *,
    seed: Annotated[int, Parameter(validator=Number(gte=0))] = 0,
    seconds: Annotated[float, Parameter(validator=Number(gt=0))] = 20,
    seeds: Annotated[int, Parameter(validator=Number(gte=1))] = 1,
    jobs: Annotated[int, Parameter(validator=Number(gte=1))] = 1,
    profile: Annotated[
        str,
        Parameter(
            help="The kind of run: mixed (each seed something of everything), rough, busy, groups,"
            " transactions, copying-group, expiration, compaction, tier, voters, eligible-leaders"
            " or power. With all, each seed has the next kind."
        ),
    ] = "mixed",
    trace: Annotated[bool, Parameter(show_default=False)] = False,
    without: list[str] | None = None,
    faults: Annotated[int, Parameter(validator=Number(gte=-1))] = -1,
    shrink: Annotated[bool, Parameter(show_default=False)] = False,
) -> int:
    """Run a cluster in virtual time, let things go wrong, and check that it keeps its promises.

    The brokers are those that serve production. Network, disks, clocks and clients are simulated.
    The same seed is the same run on every machine. A seed that fails shows what happened and the
    command that shows it again.

    Parameters
    ----------
    seed
        The first seed.
    seconds
        For how many seconds of virtual time things go wrong. Then everything is healed.
    seeds
        How many seeds to run, from the first on.
    jobs
        How many processes run seeds at the same time.
    trace
        Print everything that happens.
    without
        Leave a kind of fault or client out, such as kill, cut or admins.
    faults
        After how many faults nothing more goes wrong; -1 for no limit.
    shrink
        Look for a smaller run in which a failing seed fails in the same way.
    """
    from ottla.sim.cluster_run.profile import kind_of

    try:
        kind_of(seed, profile)
    except ValueError as error:
        raise UsageError(str(error)) from None
    if shrink:
        return _shrink(seed, seconds, without or [], faults, kind_of(seed, profile))
    failed = 0
    run = partial(
        _run,
        seconds=seconds,
        without=tuple(without or ()),
        faults=faults,
        profile=profile,
        trace=trace,
    )
    for passed, report in _reports(range(seed, seed + seeds), run, jobs):
        print(report, file=sys.stdout if passed else sys.stderr)
        failed += not passed
    if failed:
        print(f"{failed} of {seeds} seeds failed", file=sys.stderr)
    return FAILED if failed else OK


def _reports(
    seeds: Iterable[int], run: Callable[[int], tuple[bool, str]], jobs: int
) -> Iterator[tuple[bool, str]]:
    """Run the seeds; return whether each passed, and its report."""
    if jobs == 1:
        yield from map(run, seeds)
        return
    from concurrent.futures import ProcessPoolExecutor

    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(run, seeds)


def _run(
    seed: int,
    *,
    seconds: float,
    without: tuple[str, ...],
    faults: int,
    profile: str,
    trace: bool,
) -> tuple[bool, str]:
    from ottla.sim.cluster_run.profile import kind_of
    from ottla.sim.cluster_run.report import run_variant
    from ottla.sim.cluster_run.shrink import Variant

    variant = Variant(seed, seconds, without, faults, kind_of(seed, profile))
    return run_variant(variant, shows_all=trace)


def _shrink(seed: int, seconds: float, without: list[str], faults: int, kind: str) -> int:
    """Print the smallest run that fails like the seed; return OK if there is a failing one."""
    from ottla.sim.cluster_run.report import failure_of, run_variant
    from ottla.sim.cluster_run.shrink import Variant, shrink

    try:
        smallest = shrink(Variant(seed, seconds, tuple(without), faults, kind), failure_of, print)
    except ValueError as error:
        print(error, file=sys.stderr)
        return FAILED
    print(run_variant(smallest)[1])
    return OK
