"""`ottla transactions find-hanging` and `abort`: transactions that no coordinator will end."""

from __future__ import annotations

import time
from typing import Annotated, Final

from cyclopts import Parameter
from cyclopts.types import NonNegativeInt

from ottla.cli.errors import OK, DataError, UsageError, tell
from ottla.cli.options import BootstrapServer, CommandConfig, Json, connect
from ottla.cli.output import Column, JsonValue, print_json, print_table
from ottla.client.cluster import Client
from ottla.client.topics.topics import list_topics
from ottla.client.transactions.hanging_transactions import hanging
from ottla.client.transactions.open_transactions import (
    OpenTransaction,
    abort_on_partition,
    open_transactions,
)
from ottla.model.ids import TopicPartition

_MINUTE_MS: Final = 60_000
_EXTRA_MINUTES: Final = 5
"""How much longer than its timeout a transaction may take to be ended, as in Kafka."""
_COLUMNS = [
    Column("topic"),
    Column("partition", True),
    Column("producer id", True),
    Column("producer epoch", True),
    Column("coordinator epoch", True),
    Column("start offset", True),
    Column("minutes open", True),
]


def find_hanging(
    *,
    topic: Annotated[str | None, Parameter(help="Look at this topic only.")] = None,
    partition: Annotated[
        NonNegativeInt | None, Parameter(help="Look at this partition of the topic only.")
    ] = None,
    max_transaction_timeout: Annotated[
        NonNegativeInt,
        Parameter(help="transaction.max.timeout.ms of the brokers, in minutes."),
    ] = 15,
    json: Json = False,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
) -> int:
    """Show transactions that keep read_committed consumers waiting, and that nobody will end.

    A transaction is looked at when it had no new batch for five minutes longer than the timeout.
    End it with `ottla transactions abort`.
    """
    if partition is not None and topic is None:
        raise UsageError("give --topic with --partition")
    now_ms = int(time.time() * 1000)
    oldest_ms = now_ms - (max_transaction_timeout + _EXTRA_MINUTES) * _MINUTE_MS
    if not max_transaction_timeout:
        oldest_ms = now_ms
    with connect(bootstrap_server, command_config) as client:
        found = _open(client, topic, partition)
        late = [each for each in found if each.last_timestamp <= oldest_ms]
        hang = hanging(client, late)
    if json:
        print_json([_as_json(each) for each in hang])
    else:
        print_table(_COLUMNS, [_row(each, now_ms) for each in hang], "no transaction hangs")
    return OK


def abort(
    topic: Annotated[str, Parameter(name="--topic", help="The topic.")],
    partition: Annotated[NonNegativeInt, Parameter(name="--partition", help="The partition.")],
    *,
    start_offset: Annotated[
        NonNegativeInt | None, Parameter(help="Where the transaction begins.")
    ] = None,
    producer_id: Annotated[NonNegativeInt | None, Parameter(help="Its producer.")] = None,
    producer_epoch: Annotated[
        NonNegativeInt | None, Parameter(help="The epoch of its producer.")
    ] = None,
    coordinator_epoch: Annotated[
        int, Parameter(help="The epoch of its coordinator.", allow_leading_hyphen=True)
    ] = -1,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
) -> int:
    """Abort a transaction on one partition, although its coordinator does not know it.

    Give --start-offset, or --producer-id and --producer-epoch, as `find-hanging` shows them. Never
    abort a transaction that a producer is still using: a part of it would be lost.
    """
    by_producer = producer_id is not None and producer_epoch is not None
    if (start_offset is not None) == by_producer:
        raise UsageError("give --start-offset, or --producer-id and --producer-epoch")
    where = TopicPartition(topic, partition)
    with connect(bootstrap_server, command_config) as client:
        if producer_id is None or producer_epoch is None:
            found = _at(client, where, start_offset)
            producer_id, producer_epoch = found.producer_id, found.producer_epoch
            coordinator_epoch = found.coordinator_epoch
        abort_on_partition(client, where, producer_id, producer_epoch, coordinator_epoch)
    tell(f"aborted the transaction of producer {producer_id} on {where}")
    return OK


def _open(client: Client, topic: str | None, partition: int | None) -> list[OpenTransaction]:
    names = [each.name for each in list_topics(client)] if topic is None else [topic]
    indexes = None if partition is None else [partition]
    return [each for name in names for each in open_transactions(client, name, indexes)]


def _at(client: Client, where: TopicPartition, start_offset: int | None) -> OpenTransaction:
    for each in open_transactions(client, where.topic, [where.partition]):
        if each.start_offset == start_offset:
            return each
    raise DataError(f"no open transaction on {where} begins at offset {start_offset}")


def _row(found: OpenTransaction, now_ms: int) -> list[str]:
    minutes = max(now_ms - found.last_timestamp, 0) // _MINUTE_MS
    return [
        found.partition.topic,
        str(found.partition.partition),
        str(found.producer_id),
        str(found.producer_epoch),
        str(found.coordinator_epoch),
        str(found.start_offset),
        str(minutes),
    ]


def _as_json(found: OpenTransaction) -> JsonValue:
    return {
        "topic": found.partition.topic,
        "partition": found.partition.partition,
        "producerId": found.producer_id,
        "producerEpoch": found.producer_epoch,
        "coordinatorEpoch": found.coordinator_epoch,
        "startOffset": found.start_offset,
        "lastTimestamp": found.last_timestamp,
    }
