"""The end of a write, on the driver: all transactions of its tasks are committed, or none.

Of a streaming query:
1. The driver takes over the transactional id of the query. Other drivers of it are fenced.
2. It reads the last decision. If that is about this batch, a driver before this one died after it.
3. Otherwise it records the decision: these transactions are the batch.
4. It commits them. If it dies meanwhile, the next driver goes on here: the tasks of the repeated
   batch see the decision and write nothing.

If a transaction was aborted between 3 and 4, because the driver was away for longer than
its timeout, the decision is changed: the tasks of these transactions write again.

A batch write without txnAppId is never repeated, so it has no decision, only step 4.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass

from ottla.client.cluster import Client
from ottla.client.errors import ClientError
from ottla.client.transactions.transaction import begin, end_all
from ottla.client.transactions.transactional_ids import list_transactions
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition
from pyspark_ottla.options.sink_options import SinkSettings
from pyspark_ottla.sink.decisions import Decision, DecisionLog, TaskWrite
from pyspark_ottla.sink.task_identity import WriteIdentity
from pyspark_ottla.sink.task_transaction import TAKEN_OVER, TransactionLost

ABORTED = TAKEN_OVER | {ErrorCode.INVALID_TXN_STATE}
_log = logging.getLogger(__name__)


@dataclass
class Prepared:
    """The open transaction of a task: all of its rows are stored, and not committed."""

    write: TaskWrite
    partitions: list[TopicPartition]
    began_ms: int


def commit_batch(
    settings: SinkSettings, identity: WriteIdentity, prepared: Sequence[Prepared]
) -> None:
    """Commit a batch that may be repeated, exactly once."""
    with settings.client.connect() as client:
        log = DecisionLog(client, identity)
        last = log.read()
        if last is not None and last.number == identity.number and not last.redo:
            _abort(client, [p for p in prepared if p.write not in last.writes], identity)
            decision = last
        elif prepared:
            _check_age(settings, prepared)
            decision = Decision(identity.number, tuple(each.write for each in prepared))
            log.write(decision, (place for each in prepared for place in each.partitions))
        else:
            return
        lost = _finish(client, identity, decision)
        if lost:
            _record_loss(log, Decision(identity.number, redo=frozenset(lost)))
        _abort_leftovers(client, settings, identity)


def commit_once(
    settings: SinkSettings, identity: WriteIdentity, prepared: Sequence[Prepared]
) -> None:
    """Commit a write that is never repeated."""
    if not prepared:
        return
    with settings.client.connect() as client:
        _check_age(settings, prepared)
        decision = Decision(identity.number, tuple(each.write for each in prepared))
        lost = _finish(client, identity, decision)
        if lost:
            raise TransactionLost(
                f"the rows of {len(lost)} of {len(prepared)} tasks are not written: their"
                " transactions were aborted before the write was complete"
            )
        _abort_leftovers(client, settings, identity)


def abort_batch(
    settings: SinkSettings, identity: WriteIdentity, prepared: Sequence[Prepared]
) -> None:
    """Abort what tasks have written. What fails now is aborted by the next attempt or a timeout."""
    try:
        with settings.client.connect() as client:
            _abort(client, prepared, identity)
            _abort_leftovers(client, settings, identity)
    except ClientError as error:
        _log.warning("transactions of a failed write stay open until their timeout: %s", error)


def _finish(client: Client, identity: WriteIdentity, decision: Decision) -> list[int]:
    """Commit all transactions of a decision. Return the slots whose transaction was aborted."""
    outcomes = end_all(client, [each.producer(identity) for each in decision.writes], commit=True)
    lost = []
    for each, error in zip(decision.writes, outcomes, strict=True):
        if error is not None and error.code not in ABORTED:
            raise error
        if error is not None:
            lost.append(each.slot)
    return lost


def _record_loss(log: DecisionLog, redo: Decision) -> None:
    """Let the tasks whose transactions were aborted write again. Raise to have Spark repeat it."""
    log.read()
    log.write(redo, log.places)
    raise TransactionLost(
        f"transactions of {len(redo.redo)} tasks of batch {redo.number} were aborted before the"
        " driver could commit them. Their rows are not lost: start the query again, and they are"
        " written again"
    )


def _abort(client: Client, prepared: Sequence[Prepared], identity: WriteIdentity) -> None:
    producers = [each.write.producer(identity) for each in prepared]
    for producer, error in zip(producers, end_all(client, producers, commit=False), strict=True):
        if error is not None:
            _log.info("%s is not aborted: %s", producer.transactional_id, error)


def _abort_leftovers(client: Client, settings: SinkSettings, identity: WriteIdentity) -> None:
    """Abort what tasks that were killed have left open, so that no reader waits for it.

    Nobody else would do it before its timeout if it was not the first attempt of its task: an
    attempt that failed, a speculative one, or one of a driver that was killed.
    """
    try:
        for found in list_transactions(client, states=["Ongoing"]):
            if identity.has_task(found.transactional_id):
                begin(client, found.transactional_id, settings.transaction_timeout_ms)
    except ClientError as error:
        _log.info("transactions of killed tasks may stay open until their timeout: %s", error)


def _check_age(settings: SinkSettings, prepared: Sequence[Prepared]) -> None:
    """Raise TransactionLost if a transaction may be aborted by its timeout before it is ended."""
    oldest_ms = int(time.time() * 1000) - min(each.began_ms for each in prepared)
    if oldest_ms >= settings.transaction_timeout_ms:
        raise TransactionLost(
            f"a task began {oldest_ms / 1000:.0f} s ago, longer than"
            f" kafka.transaction.timeout.ms={settings.transaction_timeout_ms} allows: write smaller"
            " batches, or raise it (and transaction.max.timeout.ms of the brokers)"
        )
