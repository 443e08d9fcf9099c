"""OffsetCommit, versions 2 to 10: store the offsets of a group.

Versions 8 and 9, which most clients send, have a codec of their own. A request waits until its
records are committed; those behind it are handled meanwhile, so that commits which a client
pipelines share a batch. A large request comes as a message, and is handled in slices
(`large_offset_commit`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ottla.broker.codecs.offset_commit import (
    NO_RETENTION,
    CommitRequest,
    decode_commit,
    encode_commit_response,
)
from ottla.broker.context import WAITING, RequestContext
from ottla.coordinator.groups.offset_commit import (
    FIRST_TOPIC_ID,
    CommitResults,
    commit_offsets,
    expiration,
    refuse_partitions,
)
from ottla.coordinator.groups.records import NO_EXPIRATION
from ottla.metadata.image import TopicImage
from ottla.model.errors import ApiError
from ottla.model.steps import Steps
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
TAKES_LARGE = True


class Context(RequestContext):
    """A request that names its topics in the response as it did itself."""

    topics: list[str | bytes]

    def send(self, response: Message) -> None:
        """Answer with what became of each partition."""
        assert isinstance(response, CommitResults)
        if self.version in HOT_VERSIONS and not self.throttle_ms:
            names: list[str] = self.topics  # type: ignore[assignment]
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
    return decode_commit if version in HOT_VERSIONS else _decode


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


def refuse(
    request: CommitRequest | OffsetCommitRequest, error: ApiError, context: Context
) -> CommitResults | OffsetCommitResponse:
    """Return the error for every partition."""
    if isinstance(request, OffsetCommitRequest):
        from ottla.broker.large_requests.large_offset_commit import refuse_large

        return refuse_large(request, error.code)
    _, _, _, _, _, asked = request
    context.topics = [topic for topic, _ in asked]
    return CommitResults(
        [[(partition[0], error.code) for partition in partitions] for _, partitions in asked]
    )


def handle(
    node: Node, request: CommitRequest | OffsetCommitRequest, context: Context
) -> Steps[None] | None:
    """Answer with each partition's result, once what is taken is committed."""
    if isinstance(request, OffsetCommitRequest):
        return _handle_large(node, request, context)
    group_id, generation_id, member_id, instance_id, retention_ms, asked = request
    image = node.image
    known: Mapping[Any, TopicImage] = image.topics
    if context.version >= FIRST_TOPIC_ID:
        known = image.topics_by_id
    if len(asked) == 1:  # as nearly always; a comprehension would cost more
        topic, partitions = asked[0]
        context.topics = [topic]
        topics = [(known.get(topic), partitions)]
    else:
        context.topics = [topic for topic, _ in asked]
        topics = [(known.get(topic), partitions) for topic, partitions in asked]
    head = (
        context.version,
        group_id,
        generation_id,
        member_id,
        instance_id,
        NO_EXPIRATION if retention_ms == NO_RETENTION else expiration(retention_ms, node.wall_ms),
    )
    try:
        runtime = node.groups.runtime_of(group_id)
    except ApiError as error:
        context.send(refuse_partitions(topics, error.code))
        return None
    shard = runtime.shard
    results, records = commit_offsets(shard, head, topics)
    if not records:
        context.send(results)
        return None
    context.state = WAITING
    context.connection.pending.append(context)
    shard.answer(context, results)
    runtime.finish(records)
    return None


def _handle_large(node: Node, request: OffsetCommitRequest, context: Context) -> Steps[None]:
    from ottla.broker.large_requests.large_offset_commit import commit_in_parts

    head = (
        context.version,
        request.group_id,
        request.generation_id_or_member_epoch,
        request.member_id,
        request.group_instance_id,
        expiration(request.retention_time, node.wall_ms),
    )
    return commit_in_parts(node, request, head, context)
