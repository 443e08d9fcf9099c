"""Moves of replicas between log directories that a plan names.

A directory is told to the broker before the replica is assigned: then the broker creates the
replica there, and nothing has to be moved. After that, brokers that have got the replica meanwhile
are asked once more.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping

from ottla.client.cluster import Client
from ottla.client.errors import Refused
from ottla.client.topics.log_dirs import Replica, alter_log_dirs, is_to_come, replica_log_dirs
from ottla.model.ids import TopicPartition

_INTERVAL_S = 0.1
_LONGEST_S = 10.0


def begin_moves(
    client: Client, wanted: Mapping[Replica, str]
) -> tuple[dict[Replica, str], list[Refused | None]]:
    """Begin to move replicas. Return those that are still to be created, and the errors."""
    errors = alter_log_dirs(client, wanted) if wanted else {}
    to_come = {name: wanted[name] for name, error in errors.items() if is_to_come(error)}
    return to_come, [error for error in errors.values() if not is_to_come(error)]


def move_those_to_come(
    client: Client, to_come: Mapping[Replica, str], begun: Collection[TopicPartition]
) -> list[Refused | None]:
    """Ask again for the replicas of partitions whose reassignment has begun. Return the errors."""
    waiting = {name: path for name, path in to_come.items() if name[1] in begun}
    refused: list[Refused | None] = []
    end = time.monotonic() + _LONGEST_S
    while waiting:
        is_last = time.monotonic() >= end
        errors = alter_log_dirs(client, waiting)
        refused += [error for error in errors.values() if is_last or not is_to_come(error)]
        waiting = {name: waiting[name] for name, error in errors.items() if is_to_come(error)}
        if is_last:
            break
        if waiting:
            time.sleep(_INTERVAL_S)
    return refused


def cancel_moves(client: Client, wanted: Mapping[Replica, str]) -> list[Refused | None]:
    """Let replicas stay in the directories where they are. Return the errors."""
    if not wanted:
        return []
    moving = {
        name: found.path
        for name, found in replica_log_dirs(client, wanted).items()
        if found.future is not None and name in wanted
    }
    return list(alter_log_dirs(client, moving).values()) if moving else []
