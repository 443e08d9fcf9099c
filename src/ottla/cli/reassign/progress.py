"""Follows reassignments until they have ended, with a progress bar on a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from enum import Enum
from typing import NamedTuple

from ottla.client.cluster import Client
from ottla.client.topics.log_dirs import Replica, ReplicaLogDir, replica_log_dirs
from ottla.client.topics.reassignment_plan import Placement
from ottla.client.topics.reassignments import (
    Placed,
    Reassignment,
    current_replicas,
    list_reassignments,
)
from ottla.model.ids import TopicPartition

INTERVAL_S = 0.1
SETTLE_S = 5.0


class State(Enum):
    """How far the reassignment of a partition is."""

    COMPLETE = "complete"
    MOVING = "in progress"
    DIFFERENT = "not as planned"


class Progress(NamedTuple):
    """The state of one partition of a plan."""

    partition: TopicPartition
    state: State
    wanted: tuple[int, ...]
    replicas: tuple[int, ...]
    missing: tuple[int, ...]
    """The wanted replicas that are not in sync yet."""
    misplaced: tuple[int, ...] = ()
    """The replicas that are not in the wanted log directory."""


def progress_of(client: Client, wanted: Placement) -> list[Progress]:
    """Return how far the partitions of a plan are."""
    plan = wanted.plan
    moving = list_reassignments(client, list(plan))
    placed = current_replicas(client, sorted({name.topic for name in plan}))
    found = [_progress(name, ids, placed.get(name), moving.get(name)) for name, ids in plan.items()]
    existing = {
        (broker, name): path
        for (broker, name), path in wanted.log_dirs.items()
        if name in placed and broker in placed[name].replicas
    }
    if existing:
        dirs = replica_log_dirs(client, existing)
        found = [_with_log_dirs(each, existing, dirs) for each in found]
    return found


def _with_log_dirs(
    progress: Progress, wanted: Mapping[Replica, str], dirs: Mapping[Replica, ReplicaLogDir]
) -> Progress:
    """Take the log directories of the replicas into account."""
    name, state = progress.partition, progress.state
    misplaced: list[int] = []
    for replica in progress.replicas:
        path = wanted.get((replica, name))
        present = dirs.get((replica, name), ReplicaLogDir(""))
        if path in (None, present.path) and present.future is None:
            continue
        misplaced.append(replica)
        if state is State.COMPLETE:
            state = State.MOVING if present.future == path else State.DIFFERENT
    return progress._replace(state=state, misplaced=tuple(misplaced))


def _progress(
    name: TopicPartition,
    wanted: Sequence[int],
    placed: Placed | None,
    moving: Reassignment | None,
) -> Progress:
    replicas, isr = placed or Placed((), ())
    missing = tuple(each for each in wanted if each not in isr)
    if moving is not None:
        state = State.MOVING
    else:
        state = State.COMPLETE if replicas == tuple(wanted) else State.DIFFERENT
    return Progress(name, state, tuple(wanted), replicas, missing)


def wait_until_done(client: Client, wanted: Placement) -> list[Progress]:
    """Wait until nothing of a plan is in progress any more; return the states then.

    Brokers learn a little later than the controller that a reassignment has ended.
    """
    settled_at: float | None = None
    with ExitStack() as stack:
        total = len(wanted.plan)
        show = _bar(stack, total) if sys.stderr.isatty() else _nothing
        while True:
            found = progress_of(client, wanted)
            moving = [each for each in found if each.state is State.MOVING]
            show(total - len(moving), sum(_to_go(each) for each in moving))
            now = time.monotonic()
            if moving:
                settled_at = None
            elif settled_at is None:
                settled_at = now + SETTLE_S
            is_complete = all(each.state is State.COMPLETE for each in found)
            if is_complete or (settled_at is not None and now >= settled_at):
                return found
            time.sleep(INTERVAL_S)


def _to_go(progress: Progress) -> int:
    """Return how many replicas are not yet in sync, or not where they are to be."""
    return len({*progress.missing, *progress.misplaced})


def _nothing(done: int, missing: int) -> None:
    """Show nothing: there is no terminal."""


def _bar(stack: ExitStack, total: int) -> Callable[[int, int], None]:
    """Draw a progress bar; return a function that moves it."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    bar = stack.enter_context(
        Bar(
            TextColumn("partitions"),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TextColumn("{task.fields[missing]} replicas to go"),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            transient=True,
        )
    )
    task = bar.add_task("", total=total, missing="?")

    def show(done: int, missing: int) -> None:
        bar.update(task, completed=done, missing=f"{missing:,}")

    return show
