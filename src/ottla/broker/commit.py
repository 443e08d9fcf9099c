"""OffsetCommit in the versions of today's clients, without the detour over message classes.

The answer stands in the connection's `out` at once, as that of Produce does: it leaves when the
node has settled, and is replaced before that if its records could not be committed. So commits
that a client pipelines share a batch, where waiting for each would give every one its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.commit_codec import decode_commit, encode_commit_response
from ottla.broker.connection import Connection
from ottla.coordinator.groups.offset_commit import (
    Commit,
    CommitResults,
    commit_offsets,
    refuse_commit,
)
from ottla.coordinator.groups.records import NO_EXPIRATION
from ottla.model.errors import ApiError
from ottla.wire.message import Message

if TYPE_CHECKING:
    from ottla.broker.node import Node


class CommitReply:
    """An answer that is given already and can still be taken back."""

    __slots__ = ("_connection", "_correlation_id", "_given", "_names", "_slot")

    def __init__(
        self,
        connection: Connection,
        correlation_id: int,
        names: list[str],
        given: CommitResults,
    ) -> None:
        self._connection = connection
        self._correlation_id = correlation_id
        self._names = names
        self._given = given
        self._slot = len(connection.out)
        connection.out.append(encode_commit_response(correlation_id, names, given.topics))

    def send(self, response: Message) -> None:
        """What is to be said after all; nothing happens if the peer has gone."""
        if response is self._given:
            return
        assert isinstance(response, CommitResults)
        out = self._connection.out
        if self._slot < len(out):
            out[self._slot] = encode_commit_response(
                self._correlation_id, self._names, response.topics
            )


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
    runtime.shard.answer(CommitReply(connection, correlation_id, names, answer), answer)
    runtime.finish(records)
