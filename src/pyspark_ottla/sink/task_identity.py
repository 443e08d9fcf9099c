"""Who a task of the sink writes for: a write, its number, and which task of it this is.

The ids of transactions are made of this. An id is used again by the same task of the next batch,
which aborts what a task that died has left open. Attempts of one task have different ids, so that
two of them can run at the same time; the driver commits one.
"""

from __future__ import annotations

from typing import NamedTuple

from pyspark import TaskContext

QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"
PREFIX = "ottla-sink-"


class WriteIdentity(NamedTuple):
    """A write that is done once: the batch of a query, or the version of an application."""

    name: str
    number: int

    @property
    def driver_id(self) -> str:
        """The transactional id of the driver, and the group that has the decisions."""
        return PREFIX + self.name

    def task_id(self, slot: int, attempt: int) -> str:
        """Return the transactional id of an attempt of a task."""
        return f"{self.driver_id}-{slot}-{attempt}"

    def has_task(self, transactional_id: str) -> bool:
        """Return True if a transactional id is one of `task_id`.

        The name of another write may begin with this one's.
        """
        prefix = f"{self.driver_id}-"
        slot, _, attempt = transactional_id.removeprefix(prefix).partition("-")
        return transactional_id.startswith(prefix) and slot.isdigit() and attempt.isdigit()


class Task(NamedTuple):
    """An attempt of a task: `slot` is the number of its partition in Spark."""

    slot: int
    attempt: int


def current_task() -> Task:
    """Return the task that runs in this process."""
    context = TaskContext.get()
    assert context is not None, "rows are written by tasks of Spark"
    return Task(context.partitionId(), context.attemptNumber())


def current_batch() -> WriteIdentity:
    """Return the micro-batch that this task belongs to."""
    context = TaskContext.get()
    assert context is not None, "rows are written by tasks of Spark"
    query, batch = context.getLocalProperty(QUERY_ID), context.getLocalProperty(BATCH_ID)
    assert query is not None, "this is not a task of a streaming query"
    assert batch is not None, "this is not a task of a streaming query"
    return WriteIdentity(query, int(batch))
