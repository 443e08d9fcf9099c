"""An OffsetCommit of many partitions, handled in slices.

Partitions that are named more than once are committed once, with what was said last. What would
not fit into one batch is refused as a whole, as in Kafka. The rest is committed in parts, each in
a batch of its own. So a part of it may fail, or be lost in a crash: each partition has its own
result. The connection is parked meanwhile: a later commit must not be overtaken.

What a part does not need any more is dropped at once, and in slices: a request may name a million
partitions, and to free as many objects would hold the loop as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from ottla.broker.context import RequestContext
from ottla.coordinator.groups.offset_commit import (
    FIRST_TOPIC_ID,
    CommitHead,
    CommitResults,
    PartitionCode,
    PartitionCommit,
    TopicCommit,
    commit_offsets,
    refuse_commit,
)
from ottla.coordinator.runtime.reply import Reply
from ottla.metadata.image import TopicImage
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.steps import Steps, Wait, in_steps
from ottla.wire.discard import discard_in_steps
from ottla.wire.lazy_list import LazyList
from ottla.wire.message import Message
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from ottla.broker.node import Node

PARTITIONS_A_PART: Final = 100

_RECORD_BYTES: Final = 50
"""A record without names and metadata: lengths, versions, the offset, the topic's id."""

_TOPICS_A_STEP: Final = 500

_Row: TypeAlias = tuple[str | bytes, list[PartitionCode]]
"""A topic by its name or id, and the results of its partitions."""

_Topics: TypeAlias = dict[str | bytes, dict[int, OffsetCommitRequestPartition]]


class _Part(NamedTuple):
    """Some of the partitions of a request."""

    positions: list[int]
    """The places of the topics in the response."""
    topics: list[TopicCommit]


def commit_in_parts(
    node: Node, request: OffsetCommitRequest, head: CommitHead, context: RequestContext
) -> Steps[None]:
    """Commit all partitions of a request. `head` has everything but them."""
    topics = yield from _topics_once(request, context.version)
    image = node.image
    known: Mapping[Any, TopicImage] = image.topics
    if context.version >= FIRST_TOPIC_ID:
        known = image.topics_by_id
    parts = yield from _parts(topics, known)
    refusal = yield from _refusal(node, head, parts)
    if refusal is not None:
        yield from context.send_in_slices(refuse_large(request, refusal))
        yield from discard_in_steps(parts, topics, request)
        return
    rows: list[_Row] = yield from in_steps(_row, topics, _TOPICS_A_STEP)
    yield from discard_in_steps(topics, request)
    results = _Results(len(parts))
    for position, part in enumerate(parts):
        _commit(node, head, part.topics, results.part(position))
        part.topics.clear()
        yield
    if results.missing:
        yield results.all_there
    for part, of_part in zip(parts, results.sent, strict=True):
        assert of_part is not None
        for position, codes in zip(part.positions, of_part.topics, strict=True):
            rows[position][1].extend(codes)
        yield
    yield from context.send_in_slices(OffsetCommitResponse(topics=LazyList(_answered, rows)))
    yield from discard_in_steps(rows, parts, results.sent)


class _Results:
    """The results of all parts, and what waits for them."""

    def __init__(self, count: int) -> None:
        self.sent: list[CommitResults | None] = [None] * count
        self.missing = count
        self.all_there = Wait()

    def part(self, position: int) -> Reply:
        """Return the reply to which the results of one part are sent."""
        return _PartReply(self, position)

    def add(self, position: int, results: CommitResults) -> None:
        """Take the results of one part."""
        assert self.sent[position] is None, "a part is answered once"
        self.sent[position] = results
        self.missing -= 1
        if not self.missing:
            self.all_there.end()


class _PartReply:
    __slots__ = ("_position", "_results")

    def __init__(self, results: _Results, position: int) -> None:
        self._results = results
        self._position = position

    def send(self, response: Message) -> None:
        assert isinstance(response, CommitResults)
        self._results.add(self._position, response)


def _commit(node: Node, head: CommitHead, topics: list[TopicCommit], reply: Reply) -> None:
    _, group_id, *_ = head
    try:
        runtime = node.groups.runtime_of(group_id)
    except ApiError as error:
        reply.send(refuse_commit(topics, error.code))
        return
    results, records = commit_offsets(runtime.shard, head, topics)
    if records:
        runtime.shard.answer(reply, results)
        runtime.finish(records)
    else:
        reply.send(results)


def _topics_once(request: OffsetCommitRequest, version: int) -> Steps[_Topics]:
    once: _Topics = {}
    for number, topic in enumerate(request.topics):
        if not number % _TOPICS_A_STEP:
            yield
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
        if not position % _TOPICS_A_STEP:
            yield
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


def refuse_large(request: OffsetCommitRequest, code: ErrorCode) -> OffsetCommitResponse:
    """Return the error for every partition of a large request."""

    def of_partition(partition: OffsetCommitRequestPartition) -> OffsetCommitResponsePartition:
        return OffsetCommitResponsePartition(
            partition_index=partition.partition_index, error_code=code
        )

    def of_topic(topic: OffsetCommitRequestTopic) -> OffsetCommitResponseTopic:
        return OffsetCommitResponseTopic(
            name=topic.name,
            topic_id=topic.topic_id,
            partitions=LazyList(of_partition, topic.partitions),
        )

    return OffsetCommitResponse(topics=LazyList(of_topic, request.topics))


def _refusal(node: Node, head: CommitHead, parts: Sequence[_Part]) -> Steps[ErrorCode | None]:
    """Return the error if the records of all parts would not fit into one batch.

    Partitions that do not exist have none.
    """
    _, group_id, *_ = head
    try:
        room = node.groups.runtime_of(group_id).shard.max_batch_bytes
    except ApiError as error:
        return error.code
    for part in parts:
        for image, partitions in part.topics:
            if image is None:
                continue
            each = _RECORD_BYTES + len(group_id) + len(image.name)
            count = len(image.partitions)
            room -= sum(each + len(text) for index, _, _, text in partitions if 0 <= index < count)
        if room < 0:
            return ErrorCode.UNKNOWN_SERVER_ERROR
        yield
    return None


def _committed(partition: OffsetCommitRequestPartition) -> PartitionCommit:
    return (
        partition.partition_index,
        partition.committed_offset,
        partition.committed_leader_epoch,
        partition.committed_metadata or "",
    )


def _row(topic: str | bytes) -> _Row:
    return topic, []


def _answered(row: _Row) -> OffsetCommitResponseTopic:
    topic, codes = row
    return OffsetCommitResponseTopic(
        name=topic if isinstance(topic, str) else "",
        topic_id=topic if isinstance(topic, bytes) else bytes(16),
        partitions=LazyList(_result, codes),
    )


def _result(code: PartitionCode) -> OffsetCommitResponsePartition:
    return OffsetCommitResponsePartition(partition_index=code[0], error_code=code[1])
