"""OffsetCommit, versions 2 to 10: store the offsets of a group.

Versions 8 and 9, which most clients send, are served by `ottla.broker.commit`.
"""

from __future__ import annotations

from ottla.broker.context import RequestContext
from ottla.broker.node import Node
from ottla.coordinator.groups.offset_commit import (
    FIRST_TOPIC_ID,
    Commit,
    CommitResults,
    commit_offsets,
    expiration,
    refuse_commit,
)
from ottla.coordinator.runtime.reply import Reply
from ottla.metadata.image import TopicImage
from ottla.model.errors import ApiError
from ottla.wire.message import Message
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)


def handle(
    node: Node, request: OffsetCommitRequest, context: RequestContext
) -> OffsetCommitResponse | None:
    """Return each partition's result, once the accepted offsets are committed."""
    commit = Commit(
        context.version,
        request.group_id,
        request.generation_id_or_member_epoch,
        request.member_id,
        request.group_instance_id,
        expiration(request.retention_time, node.wall_ms),
        [
            (
                _find(node, topic, context.version),
                [
                    (
                        partition.partition_index,
                        partition.committed_offset,
                        partition.committed_leader_epoch,
                        partition.committed_metadata or "",
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )
    try:
        runtime = node.groups.runtime_of(request.group_id)
    except ApiError as error:
        return _response(request, refuse_commit(commit, error.code))
    results, records = commit_offsets(runtime.shard, commit)
    if not records:
        return _response(request, results)
    runtime.shard.answer(_CommitReply(context.defer(), request), results)
    runtime.finish(records)
    return None


class _CommitReply:
    """A reply that names the topics as the request did."""

    __slots__ = ("_reply", "_request")

    def __init__(self, reply: Reply, request: OffsetCommitRequest) -> None:
        self._reply = reply
        self._request = request

    def send(self, response: Message) -> None:
        assert isinstance(response, CommitResults)
        self._reply.send(_response(self._request, response))


def _find(node: Node, topic: OffsetCommitRequestTopic, version: int) -> TopicImage | None:
    if version >= FIRST_TOPIC_ID:
        return node.image.topics_by_id.get(topic.topic_id)
    return node.image.topics.get(topic.name)


def _response(request: OffsetCommitRequest, results: CommitResults) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(partition_index=index, error_code=code)
                    for index, code in codes
                ],
            )
            for topic, codes in zip(request.topics, results.topics, strict=True)
        ]
    )
