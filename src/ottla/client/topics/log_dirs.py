"""The log directories of replicas, and moves between the directories of a broker (KIP-113)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from ottla.client.cluster import Client
from ottla.client.deadline import Deadline
from ottla.client.errors import Refused
from ottla.client.topics.log_sizes import LogDescription, describe_log_dirs
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)

Replica: TypeAlias = tuple[int, TopicPartition]
"""A broker, and a partition; the broker has a replica of it, or gets one."""


class ReplicaLogDir(NamedTuple):
    """Where a replica is."""

    path: str
    future: str | None = None
    """The directory to which it is being moved."""


def alter_log_dirs(client: Client, wanted: Mapping[Replica, str]) -> dict[Replica, Refused | None]:
    """Begin to move replicas to directories of their brokers. Return the error of each.

    REPLICA_NOT_AVAILABLE: the broker has no such replica, and will create it in the directory.
    """
    deadline = client.deadline("moving replicas to other log directories")
    errors: dict[Replica, Refused | None] = {}
    for broker_id in sorted({broker_id for broker_id, _ in wanted}):
        own = {name: path for (each, name), path in wanted.items() if each == broker_id}
        errors |= _alter(client, broker_id, own, deadline)
    return errors


def is_to_come(error: Refused | None) -> bool:
    """Return True for a replica that is still to be created."""
    return error is not None and error.code == ErrorCode.REPLICA_NOT_AVAILABLE


def _alter(
    client: Client, broker_id: int, wanted: Mapping[TopicPartition, str], deadline: Deadline
) -> dict[Replica, Refused | None]:
    dirs: dict[str, dict[str, list[int]]] = {}
    for name, path in wanted.items():
        dirs.setdefault(path, {}).setdefault(name.topic, []).append(name.partition)
    request = AlterReplicaLogDirsRequest(
        dirs=[
            AlterReplicaLogDir(
                path=path,
                topics=[
                    AlterReplicaLogDirTopic(name=topic, partitions=some)
                    for topic, some in topics.items()
                ],
            )
            for path, topics in dirs.items()
        ]
    )

    def ask() -> dict[Replica, Refused | None]:
        connection = client.node(broker_id, deadline)
        response = client.call(connection, request, AlterReplicaLogDirsResponse, deadline)
        return {
            (broker_id, name): (
                Refused(each.error_code, f"{name} on broker {broker_id} to {wanted[name]}")
                if each.error_code
                else None
            )
            for topic in response.results
            for each in topic.partitions
            if (name := TopicPartition(topic.topic_name, each.partition_index)) in wanted
        }

    return client.retry(ask, deadline, harmless_twice=True)


def replica_log_dirs(client: Client, replicas: Collection[Replica]) -> dict[Replica, ReplicaLogDir]:
    """Return where replicas are, without those that do not exist."""
    deadline = client.deadline("reading the log directories")
    present: dict[Replica, str] = {}
    futures: dict[Replica, str] = {}
    for broker_id in sorted({broker_id for broker_id, _ in replicas}):
        names = [name for each, name in replicas if each == broker_id]
        for log in _logs(client, broker_id, names, deadline):
            (futures if log.is_future else present)[broker_id, log.partition] = log.directory
    return {name: ReplicaLogDir(path, futures.get(name)) for name, path in present.items()}


def _logs(
    client: Client, broker_id: int, names: Sequence[TopicPartition], deadline: Deadline
) -> list[LogDescription]:
    def ask() -> list[LogDescription]:
        found = describe_log_dirs(client, [broker_id], names, deadline)
        return [log for directory in found for log in directory.logs]

    return client.retry(ask, deadline, harmless_twice=True)
