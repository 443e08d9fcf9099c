"""The transaction under which one task of the sink writes its rows.

A task never ends it, except after an error. The driver commits it when all tasks of the write are
done (`batch_commit.py`). So until then it must not be older than its timeout.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable

from ottla.client.cluster import Client
from ottla.client.errors import ClientError, Refused
from ottla.client.transactions.transaction import add_partitions, begin, end
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition

TAKEN_OVER = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})
_log = logging.getLogger(__name__)


class TransactionLost(ClientError):
    """Somebody else has ended the transaction of a task."""


class TaskTransaction:
    """An open transaction with its producer, and the partitions that belong to it."""

    def __init__(self, client: Client, transactional_id: str, timeout_ms: int) -> None:
        self._client = client
        self._timeout_ms = timeout_ms
        self.producer = begin(client, transactional_id, timeout_ms)
        self.began_ms = int(time.time() * 1000)
        self.partitions: set[TopicPartition] = set()

    def add(self, partitions: Iterable[TopicPartition]) -> None:
        """Add the partitions that are not in the transaction yet."""
        new = [partition for partition in partitions if partition not in self.partitions]
        if not new:
            return
        try:
            add_partitions(self._client, self.producer, new)
        except Refused as error:
            raise self.explain(error) from None
        self.partitions.update(new)

    def abort(self) -> None:
        """Abort the transaction. If that fails, its timeout or the next attempt will do it."""
        try:
            end(self._client, self.producer, commit=False)
        except ClientError as error:
            _log.info("%s was not aborted: %s", self.producer.transactional_id, error)

    def explain(self, error: Refused) -> ClientError:
        """Return the error with what it means for a task."""
        if error.code not in TAKEN_OVER:
            return error
        return TransactionLost(
            f"{error}. Another attempt of this task has taken over, or the transaction was open for"
            f" longer than kafka.transaction.timeout.ms ({self._timeout_ms} ms)"
        )
