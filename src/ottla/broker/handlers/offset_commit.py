"""OffsetCommit, versions 2 to 10: store the offsets of a group.

Versions 8 and 9, which most clients send, have a codec of their own. A request waits until its
records are committed; those behind it are handled meanwhile, so that commits which a client
pipelines share a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from ottla.broker.codecs.offset_commit import decode_commit, encode_commit_response
from ottla.broker.context import RequestContext
from ottla.coordinator.groups.offset_commit import (
    FIRST_TOPIC_ID,
    Commit,
    CommitResults,
    PartitionCommit,
    commit_offsets,
    expiration,
    refuse_commit,
)
from ottla.metadata.image import TopicImage
from ottla.model.errors import ApiError
from ottla.wire.codec import decoder
from ottla.wire.message import Message
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from ottla.broker.node import Node

HOT_VERSIONS = (8, 9)
_NO_RETENTION = -1

TopicCommits: TypeAlias = tuple[str | bytes, list[PartitionCommit]]
"""A topic by its name, or from version 10 by its id, and what is committed for its partitions."""

CommitRequest: TypeAlias = tuple[str, int, str, str | None, int, list[TopicCommits]]
"""Group id, generation id, member id, group instance id, retention in ms, topics."""


class Context(RequestContext):
    """A request that names its topics in the response as it did itself."""

    topics: list[str | bytes]

    def send(self, response: Message) -> None:
        """Answer with what became of each partition."""
        assert isinstance(response, CommitResults)
        if self.version in HOT_VERSIONS and not self.throttle_ms:
            names = cast(list[str], self.topics)
            self.complete(encode_commit_response(self.correlation_id, names, response.topics))
        else:
            RequestContext.send(self, self._message(response))

    def _message(self, response: CommitResults) -> OffsetCommitResponse:
        topics = []
        for topic, codes in zip(self.topics, response.topics, strict=True):
            partitions = [
                OffsetCommitResponsePartition(partition_index=index, error_code=code)
                for index, code in codes
            ]
            if isinstance(topic, str):
                topics.append(OffsetCommitResponseTopic(name=topic, partitions=partitions))
            else:
                topics.append(OffsetCommitResponseTopic(topic_id=topic, partitions=partitions))
        return OffsetCommitResponse(topics=topics)


def decoder_of(version: int) -> Callable[..., CommitRequest]:
    """Return the function that decodes this version."""
    return _decode_hot if version in HOT_VERSIONS else _decode


def _decode_hot(
    version: int, buffer: bytearray, view: memoryview, start: int, end: int
) -> CommitRequest:
    group_id, generation_id, member_id, instance_id, topics = decode_commit(
        buffer, view, start, end
    )
    return group_id, generation_id, member_id, instance_id, _NO_RETENTION, topics  # type: ignore[return-value]


def _decode(
    version: int, buffer: bytearray, view: memoryview, start: int, end: int
) -> CommitRequest:
    frame = view[start:end].toreadonly()
    request, _ = decoder(OffsetCommitRequest, version)(frame, 0, len(frame))
    return (
        request.group_id,
        request.generation_id_or_member_epoch,
        request.member_id,
        request.group_instance_id,
        request.retention_time,
        [
            (
                topic.topic_id if version >= FIRST_TOPIC_ID else topic.name,
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


def refuse(request: CommitRequest, error: ApiError, context: Context) -> CommitResults:
    """Return the error for every partition."""
    _, _, _, _, _, asked = request
    context.topics = [topic for topic, _ in asked]
    return CommitResults(
        [[(partition[0], error.code) for partition in partitions] for _, partitions in asked]
    )


def handle(node: Node, request: CommitRequest, context: Context) -> None:
    """Answer with each partition's result, once what is taken is committed."""
    group_id, generation_id, member_id, instance_id, retention_ms, asked = request
    context.topics = [topic for topic, _ in asked]
    image = node.image
    known: Mapping[Any, TopicImage] = image.topics
    if context.version >= FIRST_TOPIC_ID:
        known = image.topics_by_id
    commit = Commit(
        context.version,
        group_id,
        generation_id,
        member_id,
        instance_id,
        expiration(retention_ms, node.wall_ms),
        [(known.get(topic), partitions) for topic, partitions in asked],
    )
    try:
        runtime = node.groups.runtime_of(group_id)
    except ApiError as error:
        context.send(refuse_commit(commit, error.code))
        return
    results, records = commit_offsets(runtime.shard, commit)
    if not records:
        context.send(results)
        return
    context.wait()
    runtime.shard.answer(context, results)
    runtime.finish(records)
