"""Gives every answered request to its judge, in the order the node decided them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ottla.sim.judges.admin import (
    judge_alter_configs,
    judge_create_partitions,
    judge_create_topics,
    judge_delete_topics,
    judge_describe_configs,
    judge_init_producer_id,
    judge_metadata,
)
from ottla.sim.judges.conditions import Conditions
from ottla.sim.judges.fetch import judge_fetch
from ottla.sim.judges.groups import (
    doubt_commit,
    doubt_heartbeat,
    judge_commit,
    judge_heartbeat,
    judge_join,
    judge_offset_fetch,
    judge_sync,
)
from ottla.sim.judges.offsets import judge_delete_records, judge_epochs, judge_list_offsets
from ottla.sim.judges.produce import doubt, find, judge_produce, may_be_doubled, targets_of
from ottla.sim.model.cluster import ClusterModel
from ottla.sim.network.exchange import Exchange
from ottla.wire.apis import ApiKey
from ottla.wire.messages.delete_records import DeleteRecordsRequest

_JUDGES: Final[dict[int, Callable[[ClusterModel, Exchange, Conditions], None]]] = {
    ApiKey.PRODUCE: judge_produce,
    ApiKey.FETCH: judge_fetch,
    ApiKey.LIST_OFFSETS: judge_list_offsets,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: judge_epochs,
    ApiKey.DELETE_RECORDS: judge_delete_records,
    ApiKey.CREATE_TOPICS: judge_create_topics,
    ApiKey.DELETE_TOPICS: judge_delete_topics,
    ApiKey.CREATE_PARTITIONS: judge_create_partitions,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: judge_alter_configs,
    ApiKey.DESCRIBE_CONFIGS: judge_describe_configs,
    ApiKey.METADATA: judge_metadata,
    ApiKey.INIT_PRODUCER_ID: judge_init_producer_id,
    ApiKey.JOIN_GROUP: judge_join,
    ApiKey.SYNC_GROUP: judge_sync,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: judge_heartbeat,
    ApiKey.OFFSET_COMMIT: judge_commit,
    ApiKey.OFFSET_FETCH: judge_offset_fetch,
}


def judge(model: ClusterModel, exchange: Exchange, conditions: Conditions) -> None:
    """Check the answer to a request, and learn from it; a Violation if it is wrong."""
    if exchange.reply is None:
        if exchange.api_key == ApiKey.PRODUCE:
            doubt_produce(model, exchange, conditions)
        return
    check = _JUDGES.get(exchange.api_key)
    if check is not None:
        check(model, exchange, conditions)


def leave_open(model: ClusterModel, exchange: Exchange, conditions: Conditions) -> None:
    """Take note that a request was handled, and nobody will be told what became of it."""
    if not expect(model, exchange, conditions) and exchange.request is not None:
        model.unanswered.append(exchange)


def expect(model: ClusterModel, exchange: Exchange, conditions: Conditions) -> bool:
    """Take note of what a request without a reply may have done; False if that is metadata."""
    if exchange.api_key == ApiKey.PRODUCE:
        doubt_produce(model, exchange, conditions)
    elif isinstance(exchange.request, DeleteRecordsRequest):
        _doubt_start(model, exchange.request)
    elif exchange.api_key == ApiKey.OFFSET_COMMIT:
        doubt_commit(model, exchange)
    elif exchange.api_key == ApiKey.CONSUMER_GROUP_HEARTBEAT:
        doubt_heartbeat(model, exchange)
    else:
        return False
    return True


def doubt_produce(model: ClusterModel, exchange: Exchange, conditions: Conditions) -> None:
    """Take note that nobody was told what became of these batches."""
    for target in targets_of(exchange):
        place = find(model, exchange, target)
        if place is not None and not target.sent.refusals:
            may_be_doubled(place, target.sent, conditions)
            doubt(place, target.sent)


def _doubt_start(model: ClusterModel, request: DeleteRecordsRequest) -> None:
    for topic in request.topics:
        for asked in topic.partitions:
            place = model.place(topic.name, asked.partition_index)
            if place is not None:
                partition = place.partition
                end = partition.acked_end + partition.open_records
                offset = end if asked.offset < 0 else min(asked.offset, end)
                partition.start_may_be = max(partition.start_may_be, offset)
