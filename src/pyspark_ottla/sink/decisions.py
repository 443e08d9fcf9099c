"""Decisions of the driver: which transactions belong to the last batch of a query.

A decision is a committed offset of a group that has the name of the query: the offset is the number
of the batch, its metadata names the transactions. So it is in the log of the cluster, and it needs
no topic of its own. The driver writes it in a transaction, which fences other drivers of the query.

    commit   these transactions are the batch. They must be committed, now or after a restart.
    redo     these tasks of the batch must write again: their transactions were aborted after the
             decision. The others are committed.

A decision that is too long for the metadata of one offset is spread over several partitions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from ottla.client.cluster import Client
from ottla.client.errors import ClientError
from ottla.client.groups.offsets import Committed, fetch_offsets
from ottla.client.transactions.transaction import (
    TransactionalProducer,
    begin,
    commit_offsets,
    end,
)
from ottla.model.ids import TopicPartition
from pyspark_ottla.sink.task_identity import WriteIdentity

COMMIT: Final = "commit"
REDO: Final = "redo"
METADATA_CHARACTERS: Final = 4_000  # brokers allow 4096 bytes (offset.metadata.max.bytes)
DRIVER_TIMEOUT_MS: Final = 10_000


class DecisionError(ClientError):
    """The decisions of a query do not allow this write."""


class TaskWrite(NamedTuple):
    """The transaction of a task."""

    slot: int
    attempt: int
    producer_id: int
    producer_epoch: int

    def producer(self, write: WriteIdentity) -> TransactionalProducer:
        """Return the producer that can end the transaction."""
        transactional_id = write.task_id(self.slot, self.attempt)
        return TransactionalProducer(transactional_id, self.producer_id, self.producer_epoch)


class Decision(NamedTuple):
    """What was decided about the batch with this number: `writes` to commit, or slots to redo."""

    number: int
    writes: tuple[TaskWrite, ...] = ()
    redo: frozenset[int] = frozenset()

    def is_left_to(self, number: int, slot: int) -> bool:
        """Return True if the task of this slot has to write its rows of batch `number`."""
        return self.number < number or (self.number == number and slot in self.redo)


def read_decision(client: Client, write: WriteIdentity) -> Decision | None:
    """Return the last decision. Raise DecisionError if it is about a later batch."""
    return _decision_in(fetch_offsets(client, write.driver_id, require_stable=True), write)


def _decision_in(
    offsets: Mapping[TopicPartition, Committed], write: WriteIdentity
) -> Decision | None:
    number = max((committed.offset for committed in offsets.values()), default=-1)
    if number < 0:
        return None
    if number > write.number:
        raise DecisionError(
            f"batch {number} of {write.name} is written already, so batch {write.number} is too"
            " old. Is the checkpoint a copy of an older one? Use a new checkpoint, or"
            " set deliveryGuarantee to at-least-once"
        )
    return _parse(number, [each.metadata for each in offsets.values() if each.offset == number])


class DecisionLog:
    """Reads and writes the decisions of a query, on the driver. Fences other drivers."""

    def __init__(self, client: Client, write: WriteIdentity) -> None:
        self._client = client
        self._write = write
        self._producer = begin(client, write.driver_id, DRIVER_TIMEOUT_MS)
        self.places: list[TopicPartition] = []
        """The partitions whose offsets have decisions."""

    def read(self) -> Decision | None:
        """Return the last decision. Nobody else can change it any more."""
        offsets = fetch_offsets(self._client, self._write.driver_id, require_stable=True)
        self.places = list(offsets)
        return _decision_in(offsets, self._write)

    def write(self, decision: Decision, partitions: Iterable[TopicPartition]) -> None:
        """Record a decision, as committed offsets of these partitions."""
        places = sorted(set(partitions))
        texts = _texts(decision)
        if len(texts) > len(places):
            raise DecisionError(
                f"the batch has {len(decision.writes)} tasks, too many to record for"
                f" {len(places)} partitions: write fewer with coalesce, or set deliveryGuarantee"
                " to at-least-once"
            )
        offsets = {
            place: (decision.number, text) for place, text in zip(places, texts, strict=False)
        }
        commit_offsets(self._client, self._producer, self._write.driver_id, offsets)
        end(self._client, self._producer, commit=True)


def _texts(decision: Decision) -> list[str]:
    """Return the decision as metadata of one or more offsets."""
    verb = REDO if decision.redo else COMMIT
    items = (
        [str(slot) for slot in sorted(decision.redo)]
        if decision.redo
        else [".".join(map(str, each)) for each in decision.writes]
    )
    parts: list[list[str]] = [[]]
    length = 0
    for item in items:
        if length + len(item) >= METADATA_CHARACTERS:
            parts.append([])
            length = 0
        parts[-1].append(item)
        length += len(item) + 1
    return [" ".join([verb, f"{at}/{len(parts)}", *part]) for at, part in enumerate(parts, 1)]


def _parse(number: int, texts: Sequence[str]) -> Decision:
    """Return the decision in the metadata of its offsets."""
    items: list[str] = []
    verb, seen, expected = COMMIT, set(), 0
    for text in texts:
        words = text.split()
        if len(words) < 2 or words[0] not in (COMMIT, REDO):
            raise DecisionError(f"the group has an offset that no sink wrote: {text[:100]!r}")
        verb = words[0]
        at, _, count = words[1].partition("/")
        seen.add(int(at))
        expected = int(count)
        items += words[2:]
    if len(seen) != expected:
        raise DecisionError(f"the decision about batch {number} is not complete: {sorted(seen)}")
    if verb == REDO:
        return Decision(number, redo=frozenset(int(item) for item in items))
    return Decision(number, tuple(TaskWrite(*map(int, item.split("."))) for item in items))
