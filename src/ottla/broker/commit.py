"""OffsetCommit in the versions of today's clients, without the detour over message classes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.commit_codec import decode_commit, encode_commit_response
from ottla.broker.connection import Connection
from ottla.coordinator.committing import Commit, CommitResults, commit_offsets, refuse_commit
from ottla.coordinator.records import NO_EXPIRATION
from ottla.model.errors import ApiError
from ottla.wire.message import Message

if TYPE_CHECKING:
    from ottla.broker.node import Node


class CommitReply:
    """The answer to one request, owed until its records are committed."""

    __slots__ = ("_connection", "_correlation_id", "_names", "_node")

    def __init__(
        self, node: Node, connection: Connection, correlation_id: int, names: list[str]
    ) -> None:
        self._node = node
        self._connection = connection
        self._correlation_id = correlation_id
        self._names = names

    def send(self, response: Message) -> None:
        """Answer, and let the connection go on; nothing happens if the peer has gone."""
        connection = self._connection
        if connection.parked is not self:
            return
        assert isinstance(response, CommitResults)
        connection.parked = None
        connection.out.append(
            encode_commit_response(self._correlation_id, self._names, response.topics)
        )
        self._node.ready.append(connection)

    def abandon(self) -> None:
        """Parked: the connection is gone."""
        self._connection.parked = None


def handle_commit(
    node: Node,
    connection: Connection,
    version: int,
    correlation_id: int,
    buffer: bytearray,
    view: memoryview,
    start: int,
    end: int,
) -> None:
    """Take one request whose body is [start, end) of the receive buffer."""
    group_id, generation_id, member_id, instance_id, asked = decode_commit(buffer, view, start, end)
    known = node.image.topics
    topics = [(known.get(name), partitions) for name, partitions in asked]
    commit = Commit(version, group_id, generation_id, member_id, instance_id, NO_EXPIRATION, topics)
    names = [name for name, _ in asked]
    try:
        runtime = node.groups.runtime_of(group_id)
    except ApiError as error:
        results = refuse_commit(commit, error.code).topics
        connection.out.append(encode_commit_response(correlation_id, names, results))
        return
    answer, records = commit_offsets(runtime.shard, commit)
    if not records:
        connection.out.append(encode_commit_response(correlation_id, names, answer.topics))
        return
    reply = connection.parked = CommitReply(node, connection, correlation_id, names)
    runtime.shard.answer(reply, answer)
    runtime.finish(records)
