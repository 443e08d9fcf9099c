"""ListOffsets, OffsetForLeaderEpoch and DeleteRecords."""

from __future__ import annotations

from collections.abc import Iterator

from compare.case import Case, case, in_versions
from compare.requests.produces import BASE_TIME
from ottla.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from ottla.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from ottla.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, PENDING = -1, -2, -3, -4, -5, -6


def list_offsets(
    topic: str, timestamp: int, *, index: int = 0, epoch: int = -1, isolation_level: int = 0
) -> ListOffsetsRequest:
    partition = ListOffsetsPartition(
        partition_index=index, current_leader_epoch=epoch, timestamp=timestamp
    )
    return ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation_level,
        topics=[ListOffsetsTopic(name=topic, partitions=[partition])],
        timeout=5000,
    )


def end_of_epoch(
    topic: str, epoch: int, *, index: int = 0, current: int = -1
) -> OffsetForLeaderEpochRequest:
    partition = OffsetForLeaderPartition(
        partition=index, current_leader_epoch=current, leader_epoch=epoch
    )
    return OffsetForLeaderEpochRequest(
        replica_id=-1, topics=[OffsetForLeaderTopic(topic=topic, partitions=[partition])]
    )


def delete_before(topic: str, offset: int, *, index: int = 0) -> DeleteRecordsRequest:
    partition = DeleteRecordsPartition(partition_index=index, offset=offset)
    return DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=topic, partitions=[partition])], timeout=5000
    )


def cases() -> Iterator[Case]:
    """Yield the cases."""
    yield from _list_offsets()
    yield from _epochs()
    yield from _delete_records()


def _list_offsets() -> Iterator[Case]:
    times = {
        "latest": LATEST,
        "earliest": EARLIEST,
        "largest timestamp": MAX_TIMESTAMP,
        "earliest local": EARLIEST_LOCAL,
        "latest tiered": LATEST_TIERED,
        "earliest pending upload": PENDING,
        "unknown time -7": -7,
        "time 0": 0,
        "a time between": BASE_TIME + 8_500,
        "a time after all": BASE_TIME + 10**9,
    }
    for name, timestamp in times.items():
        for topic in ("empty", "full", "appended"):
            yield case(f"{name} of {topic}", 11, list_offsets(topic, timestamp))
    for version in (1, 3, 4, 6, 7, 8, 9, 10):
        yield case("largest timestamp", version, list_offsets("full", MAX_TIMESTAMP))
        yield case("latest", version, list_offsets("full", LATEST))
        yield case("earliest of empty", version, list_offsets("empty", EARLIEST))
    for version in (7, 8, 10):
        yield case("earliest pending upload", version, list_offsets("full", PENDING))
        yield case("latest tiered", version, list_offsets("full", LATEST_TIERED))
    yield case(
        "largest timestamp of several batches", 11, list_offsets("full", MAX_TIMESTAMP, index=1)
    )
    yield case("a time, compressed", 11, list_offsets("full", BASE_TIME + 20_500, index=1))
    yield case("a time of deleted-from", 11, list_offsets("deleted-from", BASE_TIME + 500))
    for level in (1, 2, -1):
        yield case(
            f"isolation level {level}", 11, list_offsets("full", LATEST, isolation_level=level)
        )
    yield case("isolation level 1 of empty", 11, list_offsets("empty", LATEST, isolation_level=1))
    for epoch in (0, 1, 7, -2):
        yield case(f"leader epoch {epoch}", 11, list_offsets("full", LATEST, epoch=epoch))
    yield from in_versions("unknown topic", (1, 4, 11), list_offsets("nowhere", LATEST))
    yield case("unknown partition", 11, list_offsets("full", LATEST, index=9))
    yield case("negative partition", 11, list_offsets("full", LATEST, index=-1))
    yield case("bad name", 11, list_offsets("a b", LATEST))
    yield case("no topics", 11, ListOffsetsRequest(replica_id=-1))
    twice = list_offsets("full", LATEST)
    twice.topics[0].partitions.append(ListOffsetsPartition(timestamp=EARLIEST))
    yield from in_versions("partition twice", (1, 11), twice)
    twice = list_offsets("full", LATEST)
    twice.topics.append(twice.topics[0])
    yield case("topic twice", 11, twice)
    debug = list_offsets("full", LATEST)
    debug.replica_id = -2
    yield case("debugging replica", 11, debug)
    debug = list_offsets("full", LATEST)
    debug.replica_id = 5
    yield case("replica 5", 11, debug)


def _epochs() -> Iterator[Case]:
    for topic in ("empty", "full"):
        for epoch in (0, 1, 9, -1, -2):
            yield case(f"epoch {epoch} of {topic}", 4, end_of_epoch(topic, epoch))
    yield from in_versions("epoch 0", (2, 3), end_of_epoch("full", 0))
    yield from in_versions("epoch 0 of empty", (2, 3), end_of_epoch("empty", 0))
    for current in (0, 1, -2):
        yield case(f"current epoch {current}", 4, end_of_epoch("full", 0, current=current))
    yield from in_versions("unknown topic", (2, 4), end_of_epoch("nowhere", 0))
    yield case("unknown partition", 4, end_of_epoch("full", 0, index=9))
    yield case("negative partition", 4, end_of_epoch("full", 0, index=-1))
    yield case("no topics", 4, OffsetForLeaderEpochRequest(replica_id=-1))
    twice = end_of_epoch("full", 0)
    twice.topics[0].partitions.append(twice.topics[0].partitions[0])
    yield case("partition twice", 4, twice)


def _delete_records() -> Iterator[Case]:
    yield case("first record", 2, delete_before("deleted-from", 1))
    yield case("an earlier offset", 2, delete_before("deleted-from", 0))
    yield from in_versions("the same offset", (0, 1), delete_before("deleted-from", 1))
    yield case("beyond the end", 2, delete_before("deleted-from", 99))
    yield case("negative offset", 2, delete_before("deleted-from", -2))
    yield case("to the end", 2, delete_before("deleted-from", -1))
    yield from in_versions("unknown topic", (0, 2), delete_before("nowhere", 0))
    yield case("unknown partition", 2, delete_before("full", 0, index=9))
    yield case("negative partition", 2, delete_before("full", 0, index=-1))
    yield case("empty partition", 2, delete_before("empty", 0))
    yield case("compacted topic", 2, delete_before("compacted", 0))
    yield case("internal topic", 2, delete_before("__consumer_offsets", 0))
    yield case("no topics", 2, DeleteRecordsRequest(timeout=1000))
    twice = delete_before("empty", 0)
    twice.topics[0].partitions.append(DeleteRecordsPartition(partition_index=0, offset=-1))
    yield case("partition twice", 2, twice)
    yield case("earliest after it", 1, delete_before("deleted-from", -1))
    yield case("epoch after it", 1, delete_before("empty", -1))
