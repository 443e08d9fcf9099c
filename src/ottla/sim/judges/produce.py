"""Produce: is the answer right, and what does it say about the log?"""

from __future__ import annotations

from typing import NamedTuple

from ottla.model.errors import ErrorCode
from ottla.sim.judges.conditions import Conditions
from ottla.sim.judges.retention import check_start
from ottla.sim.model.batch import Fate, Sent
from ottla.sim.model.cluster import ClusterModel, Place
from ottla.sim.model.sequences import SequenceModel, Verdict
from ottla.sim.network.exchange import Exchange, Violation
from ottla.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
)

FIRST_TOPIC_ID = 13
_CODES = {
    Verdict.OUT_OF_ORDER: ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    Verdict.FENCED: ErrorCode.INVALID_PRODUCER_EPOCH,
}
_ANY: set[int] = {0, *_CODES.values()}
_BAD_ACKS = ErrorCode.INVALID_REQUIRED_ACKS


class Target(NamedTuple):
    """Where a batch of a request goes; `name` and `topic_id` as the client knew them."""

    name: str
    topic_id: bytes
    partition_index: int
    sent: Sent

    def __repr__(self) -> str:
        return f"{self.name}-{self.partition_index}: {self.sent}"


def targets_of(exchange: Exchange) -> list[Target]:
    """Return the batches of a Produce request, in its order."""
    assert isinstance(exchange.note, list)
    return exchange.note


def find(model: ClusterModel, exchange: Exchange, target: Target) -> Place | None:
    """Return the partition a target means: by id where the version has ids."""
    if exchange.version >= FIRST_TOPIC_ID:
        return model.place_by_id(target.topic_id, target.partition_index)
    return model.place(target.name, target.partition_index)


def judge_produce(model: ClusterModel, exchange: Exchange, conditions: Conditions) -> None:
    """Check an answered request, and take what it says into the model."""
    request, reply = exchange.request, exchange.reply
    assert isinstance(request, ProduceRequest)
    assert isinstance(reply, ProduceResponse)
    answers = [answer for topic in reply.responses for answer in topic.partition_responses]
    targets = targets_of(exchange)
    if [answer.index for answer in answers] != [target.partition_index for target in targets]:
        raise Violation(f"{exchange!r}: answered for other partitions: {reply}")
    for target, answer in zip(targets, answers, strict=True):
        _judge_partition(model, exchange, target, answer, conditions)


def _judge_partition(
    model: ClusterModel,
    exchange: Exchange,
    target: Target,
    answer: PartitionProduceResponse,
    conditions: Conditions,
) -> None:
    request = exchange.request
    assert isinstance(request, ProduceRequest)
    place = find(model, exchange, target)
    code = answer.error_code
    expected = _expected(model, exchange, target, place, conditions)
    where = f"{target.name}-{target.partition_index}: {target.sent}"
    if code == ErrorCode.KAFKA_STORAGE_ERROR:
        if place is None or not conditions.may_fail(target.name, target.partition_index):
            raise Violation(f"{where}: a storage error without a reason")
        _storage_error(place, target.sent, conditions)
    elif code not in expected:
        names = ", ".join(str(each) for each in sorted(expected))
        raise Violation(f"{where}: answered {code} ({answer.error_message}), expected {names}")
    elif code:
        if place is not None:
            place.partition.refuse(target.sent)
    else:
        assert place is not None
        _accepted(place, target.sent, answer, exchange.version, conditions)


def _expected(
    model: ClusterModel,
    exchange: Exchange,
    target: Target,
    place: Place | None,
    conditions: Conditions,
) -> set[int]:
    """Return the codes that the answer may have, storage errors aside."""
    request = exchange.request
    assert isinstance(request, ProduceRequest)
    if request.acks not in (-1, 0, 1):
        return {_BAD_ACKS}
    if place is None:
        by_id = exchange.version >= FIRST_TOPIC_ID
        known = by_id and any(t.topic_id == target.topic_id for t in model.topics.values())
        return {
            ErrorCode.UNKNOWN_TOPIC_ID
            if by_id and not known
            else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        }
    if target.sent.refusals:
        return set(target.sent.refusals) | _size_refusals(place, target.sent)
    refusals = _size_refusals(place, target.sent)
    recompressed = place.topic.setting("compression.type", "producer") != "producer"
    if refusals and not recompressed:
        return refusals
    # What another codec makes of the batch is the broker's to know.
    if target.sent.producer.producer_id < 0:
        return {0} | refusals
    return _expected_of_sequence(place, target, conditions) | refusals


def _size_refusals(place: Place, sent: Sent) -> set[int]:
    size, topic = len(sent.payload), place.topic
    if topic.setting("compression.type", "producer") != "producer":
        size += 100 + sum(map(len, sent.values))
    refusals: set[int] = set()
    if size > int(topic.setting("max.message.bytes", "1048588")):
        refusals.add(ErrorCode.MESSAGE_TOO_LARGE)
    if size > int(topic.setting("internal.segment.bytes", str(1 << 30))):
        refusals.add(ErrorCode.RECORD_LIST_TOO_LARGE)
    return refusals


def _expected_of_sequence(place: Place, target: Target, conditions: Conditions) -> set[int]:
    partition, sent = place.partition, target.sent
    state = partition.producers.get(sent.producer.producer_id)
    if state is None:
        return {0}
    _expire(state, conditions)
    verdict = state.judge(sent)
    if verdict is Verdict.ANY:
        return _ANY
    return {_CODES.get(verdict, 0)}


def _expire(state: SequenceModel, conditions: Conditions) -> None:
    """Take note that the broker may forget a producer that was silent for long."""
    if conditions.newest_wall_ms - state.last_timestamp >= conditions.producer_expiration_ms:
        state.doubt()
        state.is_expired = True


def _accepted(
    place: Place, sent: Sent, answer: PartitionProduceResponse, version: int, conditions: Conditions
) -> None:
    partition = place.partition
    is_new = sent.fate not in (Fate.ACKED, Fate.DELETED)
    if not is_new and answer.base_offset not in sent.told and _may_be_forgotten(place, sent):
        is_new = True
        sent.fate, sent.is_doubled = Fate.LOST, True
    partition.acknowledge(sent, answer.base_offset, answer.log_append_time)
    if is_new:
        _check_append_time(place, sent, answer.log_append_time, conditions)
        remember(place, sent)
    if version >= 5:
        check_start(place, answer.log_start_offset, conditions)


def _may_be_forgotten(place: Place, sent: Sent) -> bool:
    state = place.partition.producers.get(sent.producer.producer_id)
    if state is None or state.is_expired or state.judge(sent) is Verdict.NEW:
        return True
    return sent.fate is Fate.DELETED and state.has_older


def may_be_doubled(place: Place, sent: Sent, conditions: Conditions) -> None:
    """Take note that a batch was sent again, and nobody was told what became of that."""
    state = place.partition.producers.get(sent.producer.producer_id)
    if state is not None:
        _expire(state, conditions)
    is_idempotent = sent.producer.producer_id >= 0
    if is_idempotent and sent.fate in (Fate.ACKED, Fate.DELETED) and _may_be_forgotten(place, sent):
        place.partition.doubt_doubled(sent)


def remember(place: Place, sent: Sent) -> None:
    """Remember the sequence of an idempotent batch that was appended."""
    if sent.producer.producer_id >= 0:
        producers = place.partition.producers
        producers.setdefault(sent.producer.producer_id, SequenceModel()).append(sent)


def doubt(place: Place, sent: Sent) -> None:
    """Take note that nobody knows whether a batch was appended."""
    place.partition.doubt(sent)
    if sent.producer.producer_id >= 0:
        producers = place.partition.producers
        producers.setdefault(sent.producer.producer_id, SequenceModel()).doubt()


def _check_append_time(place: Place, sent: Sent, append_time: int, conditions: Conditions) -> None:
    kind = place.topic.setting("message.timestamp.type", "CreateTime")
    if kind == "CreateTime" and append_time != -1:
        raise Violation(f"{place.partition.name}: {sent} has an append time with CreateTime")
    if kind == "LogAppendTime" and append_time != conditions.wall_ms:
        raise Violation(
            f"{place.partition.name}: {sent} was appended at {append_time},"
            f" it is {conditions.wall_ms}"
        )


def _storage_error(place: Place, sent: Sent, conditions: Conditions) -> None:
    """Learn from a storage error: a full disk takes a batch back, else nobody knows."""
    if conditions.io_errors:
        doubt(place, sent)
    else:
        place.partition.take_back(sent)
