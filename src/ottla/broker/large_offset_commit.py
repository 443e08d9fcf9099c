"""An OffsetCommit of many partitions, handled in slices.

Partitions that are named more than once are committed once, with what was said last. What would
not fit into one batch is refused as a whole, as in Kafka. The rest is committed in parts, each in
a batch of its own. So a part of it may fail, or be lost in a crash: each partition has its own
result. The connection is parked meanwhile: a later commit must not be overtaken.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from ottla.broker.context import RequestContext
from ottla.broker.sliced_reply import SlicedReply
from ottla.coordinator.groups.offset_commit import (
    FIRST_TOPIC_ID,
    Commit,
    CommitResults,
    PartitionCode,
    PartitionCommit,
    commit_offsets,
    refuse_commit,
)
from ottla.coordinator.runtime.combined_reply import CombinedReply
from ottla.coordinator.runtime.reply import Reply
from ottla.metadata.image import TopicImage
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.steps import Steps
from ottla.wire.lazy_list import LazyList
from ottla.wire.message import Message
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from ottla.broker.node import Node

PARTITIONS_A_PART: Final = 100

_RECORD_BYTES: Final = 50
"""A record without names and metadata: lengths, versions, the offset, the topic's id."""

_Topics: TypeAlias = dict[str | bytes, dict[int, OffsetCommitRequestPartition]]


class _Part(NamedTuple):
    """Some of the partitions of a request."""

    positions: list[int]
    """The places of the topics in the response."""
    topics: list[tuple[TopicImage | None, list[PartitionCommit]]]


def commit_in_parts(
    node: Node, request: OffsetCommitRequest, head: Commit, context: RequestContext
) -> Steps[None]:
    """Commit all partitions of a request. `head` has everything but them."""
    topics = yield from _topics_once(request, context.version)
    image = node.image
    known: Mapping[Any, TopicImage] = image.topics
    if context.version >= FIRST_TOPIC_ID:
        known = image.topics_by_id
    parts = yield from _parts(topics, known)
    if not (yield from _fits(node, head, parts)):
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR)

    def respond(sent: Sequence[Message]) -> Message:
        return _response(list(topics), parts, sent)

    combined = CombinedReply(SlicedReply(context), max(len(parts), 1), respond)
    if not parts:
        combined.add(0, CommitResults([]))
    for position, part in enumerate(parts):
        _commit(node, head._replace(topics=part.topics), combined.part(position))
        yield


def _commit(node: Node, commit: Commit, reply: Reply) -> None:
    try:
        runtime = node.groups.runtime_of(commit.group_id)
    except ApiError as error:
        reply.send(refuse_commit(commit, error.code))
        return
    results, records = commit_offsets(runtime.shard, commit)
    if records:
        runtime.shard.answer(reply, results)
        runtime.finish(records)
    else:
        reply.send(results)


def _topics_once(request: OffsetCommitRequest, version: int) -> Steps[_Topics]:
    once: _Topics = {}
    for topic in request.topics:
        by_index = once.setdefault(topic.topic_id if version >= FIRST_TOPIC_ID else topic.name, {})
        partitions = topic.partitions
        for start in range(0, len(partitions), PARTITIONS_A_PART):
            for partition in partitions[start : start + PARTITIONS_A_PART]:
                by_index[partition.partition_index] = partition
            yield
    return once


def _parts(topics: _Topics, known: Mapping[Any, TopicImage]) -> Steps[list[_Part]]:
    parts = [_Part([], [])]
    room = PARTITIONS_A_PART
    for position, (topic, by_index) in enumerate(topics.items()):
        rest = iter(by_index.values())
        while taken := [partition for _, partition in zip(range(room), rest, strict=False)]:
            parts[-1].positions.append(position)
            parts[-1].topics.append((known.get(topic), [_committed(one) for one in taken]))
            room -= len(taken)
            if not room:
                parts.append(_Part([], []))
                room = PARTITIONS_A_PART
                yield
    return [part for part in parts if part.topics]


def _fits(node: Node, head: Commit, parts: Sequence[_Part]) -> Steps[bool]:
    """Return True if the records of all parts would fit into one batch.

    Partitions that do not exist have none.
    """
    room = node.groups.runtime_of(head.group_id).shard.max_batch_bytes
    for part in parts:
        for image, partitions in part.topics:
            if image is None:
                continue
            each = _RECORD_BYTES + len(head.group_id) + len(image.name)
            count = len(image.partitions)
            room -= sum(each + len(text) for index, _, _, text in partitions if 0 <= index < count)
        if room < 0:
            return False
        yield
    return True


def _committed(partition: OffsetCommitRequestPartition) -> PartitionCommit:
    return (
        partition.partition_index,
        partition.committed_offset,
        partition.committed_leader_epoch,
        partition.committed_metadata or "",
    )


def _response(
    topics: Sequence[str | bytes], parts: Sequence[_Part], sent: Sequence[Message]
) -> OffsetCommitResponse:
    codes: list[list[PartitionCode]] = [[] for _ in topics]
    for part, results in zip(parts, sent, strict=False):
        assert isinstance(results, CommitResults)
        for position, some in zip(part.positions, results.topics, strict=True):
            codes[position] += some
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic if isinstance(topic, str) else "",
                topic_id=topic if isinstance(topic, bytes) else bytes(16),
                partitions=LazyList(_result, of_topic),
            )
            for topic, of_topic in zip(topics, codes, strict=True)
        ]
    )


def _result(code: PartitionCode) -> OffsetCommitResponsePartition:
    return OffsetCommitResponsePartition(partition_index=code[0], error_code=code[1])
