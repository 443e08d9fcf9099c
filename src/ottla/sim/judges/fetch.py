"""Fetch: right bytes, nothing above the high watermark, nobody left waiting for what is there."""

from __future__ import annotations

from typing import NamedTuple

from ottla.model.errors import ErrorCode
from ottla.records.batch import Batch, CorruptBatch, crc_of, scan
from ottla.sim.judges.conditions import Conditions
from ottla.sim.judges.retention import check_start, may_have_moved
from ottla.sim.model.cluster import ClusterModel, Place
from ottla.sim.model.partition import Entry
from ottla.sim.network.exchange import Exchange, Violation
from ottla.wire.messages.fetch import FetchRequest, FetchResponse, PartitionData

FIRST_TOPIC_ID = 13
_SESSION_LOST = ErrorCode.FETCH_SESSION_ID_NOT_FOUND


class Followed(NamedTuple):
    """A partition a consumer follows, and from where on."""

    name: str
    topic_id: bytes
    partition_index: int
    fetch_offset: int
    max_bytes: int


class FetchNote:
    """What a fetch is about: all partitions of its session, not just those it names.

    `next_offsets` says, once the reply was judged, where the consumer goes on; `errors`
    which partitions were answered with which error.
    """

    __slots__ = ("errors", "followed", "next_offsets", "uses_session")

    def __init__(self, followed: list[Followed], *, uses_session: bool) -> None:
        self.followed = followed
        self.uses_session = uses_session
        self.next_offsets: dict[tuple[str, int], int] = {}
        self.errors: dict[tuple[str, int], int] = {}


def note_of(exchange: Exchange) -> FetchNote:
    assert isinstance(exchange.note, FetchNote)
    return exchange.note


def find(model: ClusterModel, exchange: Exchange, followed: Followed) -> Place | None:
    """Return the partition a consumer means: by id where the version has ids."""
    if exchange.version >= FIRST_TOPIC_ID:
        return model.place_by_id(followed.topic_id, followed.partition_index)
    return model.place(followed.name, followed.partition_index)


def judge_fetch(model: ClusterModel, exchange: Exchange, conditions: Conditions) -> None:
    """Check an answered fetch, and take what it says into the model."""
    request, reply, note = exchange.request, exchange.reply, note_of(exchange)
    assert isinstance(request, FetchRequest)
    assert isinstance(reply, FetchResponse)
    if reply.error_code:
        if reply.error_code != _SESSION_LOST or not note.uses_session:
            raise Violation(f"{exchange!r}: answered {reply.error_code}")
        return
    by_key = {_key(exchange, each): each for each in note.followed}
    total = 0
    for topic in reply.responses:
        key = topic.topic_id if exchange.version >= FIRST_TOPIC_ID else topic.topic
        for data in topic.partitions:
            followed = by_key.get((key, data.partition_index))
            if followed is None:
                raise Violation(f"{exchange!r}: answered for {topic.topic}-{data.partition_index}")
            _judge_partition(model, exchange, followed, data, conditions, total == 0)
            total += len(data.records or b"")
    if not total:
        _check_nothing_was_there(model, exchange)


def missed_data(model: ClusterModel, exchange: Exchange) -> Followed | None:
    """Return a followed partition that has records for a fetch that takes any, or None."""
    request = exchange.request
    assert isinstance(request, FetchRequest)
    for followed in note_of(exchange).followed:
        place = find(model, exchange, followed)
        if (
            request.min_bytes <= 1
            and place is not None
            and place.partition.start <= followed.fetch_offset < place.partition.end
        ):
            return followed
    return None


def _key(exchange: Exchange, followed: Followed) -> tuple[bytes | str, int]:
    if exchange.version >= FIRST_TOPIC_ID:
        return followed.topic_id, followed.partition_index
    return followed.name, followed.partition_index


def _check_nothing_was_there(model: ClusterModel, exchange: Exchange) -> None:
    note = note_of(exchange)
    for followed in note.followed:
        place = find(model, exchange, followed)
        if place is None or (followed.name, followed.partition_index) in note.errors:
            continue
        if place.partition.start <= followed.fetch_offset < place.partition.end:
            raise Violation(
                f"{exchange!r}: nothing from {place.partition.name} at {followed.fetch_offset},"
                f" which ends at {place.partition.end}"
            )


def _judge_partition(
    model: ClusterModel,
    exchange: Exchange,
    followed: Followed,
    data: PartitionData,
    conditions: Conditions,
    is_first: bool,
) -> None:
    place = find(model, exchange, followed)
    if data.error_code:
        note_of(exchange).errors[followed.name, followed.partition_index] = data.error_code
        _judge_error(model, exchange, followed, place, data.error_code, conditions)
        return
    if place is None:
        raise Violation(f"{exchange!r}: {followed.name}-{followed.partition_index} is gone")
    partition, high_watermark = place.partition, data.high_watermark
    if not partition.end <= high_watermark <= partition.end + partition.open_records:
        raise Violation(
            f"{exchange!r}: the high watermark of {partition.name} is {high_watermark}, the log"
            f" ends at {partition.end} with {partition.open_records} records open"
        )
    if data.last_stable_offset != high_watermark:
        raise Violation(f"{exchange!r}: the last stable offset is {data.last_stable_offset}")
    if exchange.version >= 5:
        check_start(place, data.log_start_offset, conditions)
    records = data.records or b""
    if records:
        next_offset = _read(model, place, followed, records, high_watermark, is_first)
        note_of(exchange).next_offsets[followed.name, followed.partition_index] = next_offset


def _read(
    model: ClusterModel,
    place: Place,
    followed: Followed,
    records: bytes,
    high_watermark: int,
    is_first: bool,
) -> int:
    """Check the batches of one partition; the offset after the last whole one."""
    offset, entries = read_batches(model, place, records, followed.fetch_offset)
    where = f"{place.partition.name} from {followed.fetch_offset}"
    if offset > high_watermark:
        raise Violation(f"{where}: read up to {offset}, the high watermark is {high_watermark}")
    if not entries and is_first:
        raise Violation(f"{where}: {len(records)} bytes without one whole batch")
    if len(records) > followed.max_bytes and not (
        is_first and len(entries) == 1 and entries[0].size == len(records)
    ):
        raise Violation(f"{where}: {len(records)} bytes, {followed.max_bytes} were allowed")
    return offset


def read_batches(
    model: ClusterModel, place: Place, records: bytes, fetch_offset: int
) -> tuple[int, list[Entry]]:
    """Check bytes as they were read; the offset after the last whole batch, and the batches."""
    partition, offset = place.partition, -1
    entries: list[Entry] = []
    where = f"{partition.name} from {fetch_offset}"
    try:
        for batch in scan(records, 0, len(records)):
            if offset < 0 and not batch.base_offset <= fetch_offset < batch.next_offset:
                raise Violation(f"{where}: the first batch is {batch}")
            if offset >= 0 and batch.base_offset != offset:
                raise Violation(f"{where}: offset {offset} is followed by {batch}")
            entry = partition.see(model.sents, batch, _checked(records, batch, where))
            if entries and entry.leader_epoch < entries[-1].leader_epoch:
                raise Violation(f"{where}: the leader epoch goes back with {batch}")
            entries.append(entry)
            offset = batch.next_offset
    except CorruptBatch as error:
        raise Violation(f"{where}: {error}") from error
    return (fetch_offset if offset < 0 else offset), entries


def _checked(records: bytes, batch: Batch, where: str) -> bytes:
    data = records[batch.position : batch.end]
    if crc_of(memoryview(data), 0, len(data)) != batch.crc:
        raise Violation(f"{where}: the CRC of {batch} is wrong")
    return data


def _judge_error(
    model: ClusterModel,
    exchange: Exchange,
    followed: Followed,
    place: Place | None,
    code: int,
    conditions: Conditions,
) -> None:
    what = f"{exchange!r}: {followed.name}-{followed.partition_index} answered {code}"
    if code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID):
        # A deletion takes effect before its reply, which may take more than one wake-up.
        if place is not None and not conditions.is_being_deleted(
            place.topic.name, place.topic.topic_id
        ):
            raise Violation(f"{what}, yet it exists")
    elif code == ErrorCode.KAFKA_STORAGE_ERROR:
        if place is None or not conditions.may_fail(followed.name, followed.partition_index):
            raise Violation(f"{what} without a reason")
    elif code == ErrorCode.OFFSET_OUT_OF_RANGE and place is not None:
        offset, partition = followed.fetch_offset, place.partition
        inside = partition.start <= offset <= partition.end
        if inside and not may_have_moved(place, offset + 1, conditions):
            raise Violation(f"{what}: the log has {partition.start} to {partition.end}")
    else:
        raise Violation(what)
