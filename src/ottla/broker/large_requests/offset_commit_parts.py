"""Commits of many partitions, in parts: what OffsetCommit and TxnOffsetCommit share.

Partitions that are named more than once are committed once, with what was said last. Each part is
written in a batch of its own, so a part may fail: each partition has its own result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple, Protocol, TypeAlias, TypeVar

from ottla.broker.large_requests.chained_dict import ChainedDict
from ottla.coordinator.groups.offset_commit import (
    CommitResults,
    PartitionCode,
    PartitionCommit,
    TopicPartitions,
)
from ottla.coordinator.runtime.combined_reply import ReplyParts
from ottla.coordinator.runtime.reply import Reply
from ottla.metadata.image import TopicImage
from ottla.model.steps import Steps, Wait
from ottla.wire.message import Message

PARTITIONS_A_PART: Final = 100

TOPICS_A_STEP: Final = 500

_RECORD_BYTES: Final = 50
"""A record without names and metadata: lengths, versions, the offset, the topic's id."""

Row: TypeAlias = tuple[str | bytes, list[PartitionCode]]
"""A topic by its name or id, and the results of its partitions."""


class CommittedPartition(Protocol):
    """A partition of a request."""

    partition_index: int
    committed_offset: int
    committed_leader_epoch: int
    committed_metadata: str | None


P = TypeVar("P", bound=CommittedPartition)
TopicCommits: TypeAlias = ChainedDict[str | bytes, ChainedDict[int, P]]
"""What is committed, by topic (its name or id) and partition."""


class Part(NamedTuple):
    """Some of the partitions of a request."""

    positions: list[int]
    """The places of the topics in the response."""
    topics: TopicPartitions


class PartResults:
    """The results of all parts, in their order. Each is sent when the part is written."""

    def __init__(self, count: int) -> None:
        self._replies = ReplyParts(count, self._complete)
        self._all_there = Wait()
        self.sent: list[CommitResults] = []

    def part(self, position: int) -> Reply:
        """Return the reply to which the results of one part are sent."""
        return self._replies.part(position)

    def _complete(self, sent: list[Message]) -> None:
        self.sent = [results for results in sent if isinstance(results, CommitResults)]
        self._all_there.end()

    def put_into(self, rows: Sequence[Row], parts: Sequence[Part]) -> Steps[None]:
        """Wait for all results, and add them to the rows of their topics."""
        if parts and not self._all_there.is_over:
            yield self._all_there
        for part, of_part in zip(parts, self.sent, strict=True):
            for position, codes in zip(part.positions, of_part.topics, strict=True):
                rows[position][1].extend(codes)
            yield


def each_once(topics: Iterable[tuple[str | bytes, Sequence[P]]]) -> Steps[TopicCommits[P]]:
    """Return each partition once, with what was said last."""
    once: TopicCommits[P] = ChainedDict()
    for number, (topic, partitions) in enumerate(topics):
        if not number % TOPICS_A_STEP:
            yield
        by_index = once.find(topic)
        if by_index is None:
            by_index = ChainedDict()
            once.put(topic, by_index)
        for start in range(0, len(partitions), PARTITIONS_A_PART):
            for partition in partitions[start : start + PARTITIONS_A_PART]:
                by_index.put(partition.partition_index, partition)
            yield
    return once


def parts_of(
    topics: TopicCommits[P], image_of: Callable[[str | bytes], TopicImage | None]
) -> Steps[list[Part]]:
    """Return the partitions in parts. A topic that does not exist has no image."""
    parts = [Part([], [])]
    room = PARTITIONS_A_PART
    for position, (topic, by_index) in enumerate(topics.entries()):
        if not position % TOPICS_A_STEP:
            yield
        rest = by_index.values()
        while taken := [partition for _, partition in zip(range(room), rest, strict=False)]:
            parts[-1].positions.append(position)
            parts[-1].topics.append((image_of(topic), [_committed(one) for one in taken]))
            room -= len(taken)
            if not room:
                parts.append(Part([], []))
                room = PARTITIONS_A_PART
                yield
    return [part for part in parts if part.topics]


def fit_into_one_batch(parts: Sequence[Part], group_id: str, batch_bytes: int) -> Steps[bool]:
    """Return True if the records of all parts have room in one batch.

    Partitions that do not exist have none.
    """
    room = batch_bytes
    for part in parts:
        for image, partitions in part.topics:
            if image is None:
                continue
            each = _RECORD_BYTES + len(group_id) + len(image.name)
            count = len(image.partitions)
            room -= sum(each + len(text) for index, _, _, text in partitions if 0 <= index < count)
        if room < 0:
            return False
        yield
    return True


def row(topic: str | bytes) -> Row:
    """Return a topic without results."""
    return topic, []


def _committed(partition: CommittedPartition) -> PartitionCommit:
    return (
        partition.partition_index,
        partition.committed_offset,
        partition.committed_leader_epoch,
        partition.committed_metadata or "",
    )
