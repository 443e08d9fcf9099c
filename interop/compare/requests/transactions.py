"""Transactions: producers with a transactional id, their partitions and offsets, ends and fences.

Markers are written after the end of a transaction is answered. So a request that needs the end is
sent again until the coordinator no longer says CONCURRENT_TRANSACTIONS.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from compare.case import Case, Remember, Seen, asking, case
from compare.requests.produces import new_batch, produce, record
from ottla.model.errors import ErrorCode
from ottla.wire.message import Message
from ottla.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from ottla.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.wire.messages.list_transactions import ListTransactionsRequest
from ottla.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from ottla.wire.messages.produce import ProduceRequest
from ottla.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from ottla.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

TOPIC, GROUP = "tx-topic", "tx-group"
ID, EPOCH = "tx producer", "tx epoch"
TIMEOUT_MS = 60_000
_BUSY = {
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
}


def cases() -> Iterator[Case]:
    """Yield the cases."""
    yield case(
        "topic for transactions",
        7,
        CreateTopicsRequest(
            topics=[CreatableTopic(name=TOPIC, num_partitions=3, replication_factor=1)]
        ),
        changes=True,
    )
    find = FindCoordinatorRequest(key_type=1, coordinator_keys=["tx"])
    yield case("coordinator of transactions", 4, find)._replace(until=_is_found, changes=True)
    yield from _inits()
    yield from _old_clients()
    yield from _offsets()
    yield from _new_clients()
    yield from _fences()
    yield from _markers()
    yield from _lists()


def _is_found(answer: Message) -> bool:
    assert isinstance(answer, FindCoordinatorResponse)
    return not answer.coordinators[0].error_code


def _is_decided(answer: Message) -> bool:
    """Return True unless the coordinator is still busy with an earlier request."""
    if isinstance(answer, AddPartitionsToTxnResponse):
        topics = answer.results_by_topic_v3_and_below
        codes = {
            each.partition_error_code for topic in topics for each in topic.results_by_partition
        }
        return not codes & _BUSY
    if isinstance(answer, DescribeTransactionsResponse):
        return not any(
            state.transaction_state.startswith("Prepare") for state in answer.transaction_states
        )
    return getattr(answer, "error_code", 0) not in _BUSY


def _remember(seen: Seen, answer: Message) -> None:
    assert isinstance(answer, InitProducerIdResponse | EndTxnResponse)
    if not answer.error_code and answer.producer_id >= 0:
        seen.values[ID] = answer.producer_id
        seen.values[EPOCH] = answer.producer_epoch


def _init(
    name: str, version: int = 4, *, transactional_id: str = "tx", **fields: int | bool
) -> Case:
    given = {"transaction_timeout": TIMEOUT_MS, **fields}
    request = InitProducerIdRequest(transactional_id=transactional_id, **given)  # type: ignore[arg-type]
    remember = _remember if transactional_id == "tx" else None
    return case(name, version, request, remember=remember)._replace(until=_is_decided)


def _asking(
    name: str,
    version: int,
    of: type[Message],
    ask: Callable[[Seen], Message],
    remember: Remember | None = None,
) -> Case:
    """Return a case that is sent again until the coordinator has ended what it is busy with."""
    return asking(name, version, of, ask, remember=remember)._replace(until=_is_decided)


def _inits() -> Iterator[Case]:
    yield _init("first of an id")
    yield _init("again, with another epoch", 5)
    yield _init("without a timeout", transaction_timeout=0)
    yield _init("with a timeout above the limit", transaction_timeout=2**31 - 1)
    yield _init("with two-phase commit", 6, enable2_pc=True)
    yield _init("to keep a prepared transaction", 6, keep_prepared_txn=True)
    yield _init("with a foreign producer id", producer_id=99_999, producer_epoch=0)
    for name, back in (("present", 0), ("earlier", 1), ("later", -3)):
        yield _asking(
            f"with the {name} epoch",
            4,
            InitProducerIdRequest,
            lambda seen, back=back: InitProducerIdRequest(  # type: ignore[misc]
                transactional_id="tx",
                transaction_timeout=TIMEOUT_MS,
                producer_id=seen.number(ID),
                producer_epoch=seen.number(EPOCH) - back,
            ),
            _remember,
        )


def _add(
    name: str,
    topics: dict[str, list[int]],
    *,
    transactional_id: str = "tx",
    other_id: int = 0,
    later: int = 0,
) -> Case:
    def ask(seen: Seen) -> Message:
        return AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=transactional_id,
            v3_and_below_producer_id=seen.number(ID) + other_id,
            v3_and_below_producer_epoch=seen.number(EPOCH) + later,
            v3_and_below_topics=_topics(topics),
        )

    return _asking(name, 3, AddPartitionsToTxnRequest, ask)


def _topics(topics: dict[str, list[int]]) -> list[AddPartitionsToTxnTopic]:
    return [AddPartitionsToTxnTopic(name=name, partitions=found) for name, found in topics.items()]


def _verify(name: str, version: int, partition: int, *, later: int = 0) -> Case:
    def ask(seen: Seen) -> Message:
        transaction = AddPartitionsToTxnTransaction(
            transactional_id="tx",
            producer_id=seen.number(ID),
            producer_epoch=seen.number(EPOCH) + later,
            verify_only=True,
            topics=_topics({TOPIC: [partition]}),
        )
        return AddPartitionsToTxnRequest(transactions=[transaction])

    return asking(name, version, AddPartitionsToTxnRequest, ask)


def _write(
    name: str, version: int, partition: int, sequence: int = 0, *, later: int = 0, of: str = "tx"
) -> Case:
    def ask(seen: Seen) -> Message:
        batch = new_batch(
            [record(1)],
            producer_id=seen.number(ID),
            producer_epoch=seen.number(EPOCH) + later,
            base_sequence=sequence,
            is_transactional=True,
        )
        return produce(TOPIC, batch, index=partition, transactional_id=of)

    return asking(name, version, ProduceRequest, ask)


def _end(
    name: str,
    version: int,
    committed: bool,
    *,
    later: int = 0,
    other_id: int = 0,
    transactional_id: str = "tx",
) -> Case:
    def ask(seen: Seen) -> Message:
        return EndTxnRequest(
            transactional_id=transactional_id,
            producer_id=seen.number(ID) + other_id,
            producer_epoch=seen.number(EPOCH) + later,
            committed=committed,
        )

    return _asking(name, version, EndTxnRequest, ask, _remember)


def _describe(name: str) -> Case:
    request = DescribeTransactionsRequest(transactional_ids=["tx"])
    return case(name, 0, request)._replace(until=_is_decided)


def _old_clients() -> Iterator[Case]:
    """Yield clients of transaction version 0 and 1, which keep their epoch."""
    yield _end("commit of nothing, old", 4, True)
    yield _end("abort of nothing, old", 4, False)
    yield _add("unknown topic", {TOPIC: [0], "nowhere": [0]})
    yield _add("unknown partition", {TOPIC: [0, 9]})
    yield _add("unknown id", {TOPIC: [0]}, transactional_id="nobody")
    yield _add("empty id", {TOPIC: [0]}, transactional_id="")
    yield _add("foreign producer id", {TOPIC: [0]}, other_id=7)
    yield _add("earlier epoch", {TOPIC: [0]}, later=-1)
    yield _add("later epoch", {TOPIC: [0]}, later=1)
    yield _describe("without a transaction")
    yield _write("before the partition is added", 11, 0)
    yield _add("partitions", {TOPIC: [0, 1]})
    yield _add("the same partitions again", {TOPIC: [0, 1]})
    for version in (4, 5):
        yield _verify("a partition of the transaction", version, 0)
        yield _verify("another partition", version, 2)
        yield _verify("a partition, earlier epoch", version, 0, later=-1)
    yield _write("in a transaction", 11, 0)
    yield _write("in a transaction, again", 11, 0)
    yield _write("in a transaction, out of order", 11, 0, 5)
    yield _write("in a transaction, earlier epoch", 11, 0, 1, later=-1)
    yield _write("in a transaction without its id", 11, 1, of="")
    yield _describe("with a transaction")
    yield _end("unknown id", 4, True, transactional_id="nobody")
    yield _end("foreign producer id", 4, True, other_id=7)
    yield _end("earlier epoch", 4, True, later=-1)
    yield _end("commit, old", 4, True)
    yield _end("commit again, old", 4, True)
    yield _end("abort after the commit, old", 4, False)
    yield _describe("after a commit, old")


def _add_offsets(name: str, group: str = GROUP, *, later: int = 0) -> Case:
    def ask(seen: Seen) -> Message:
        return AddOffsetsToTxnRequest(
            transactional_id="tx",
            producer_id=seen.number(ID),
            producer_epoch=seen.number(EPOCH) + later,
            group_id=group,
        )

    return _asking(name, 3, AddOffsetsToTxnRequest, ask)


def _commit(
    name: str, version: int, offset: int, *, later: int = 0, generation: int = -1, member: str = ""
) -> Case:
    def ask(seen: Seen) -> Message:
        partition = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
        return TxnOffsetCommitRequest(
            transactional_id="tx",
            group_id=GROUP,
            producer_id=seen.number(ID),
            producer_epoch=seen.number(EPOCH) + later,
            generation_id=generation,
            member_id=member,
            topics=[TxnOffsetCommitRequestTopic(name=TOPIC, partitions=[partition])],
        )

    return asking(name, version, TxnOffsetCommitRequest, ask)


def _committed(name: str, *, stable: bool) -> Case:
    topics = [OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[0])]
    group = OffsetFetchRequestGroup(group_id=GROUP, topics=topics)
    return case(name, 9, OffsetFetchRequest(groups=[group], require_stable=stable))


def _offsets() -> Iterator[Case]:
    yield _commit("before the group is added", 3, 1)
    yield _add_offsets("earlier epoch", later=-1)
    yield _add_offsets("empty group", "")
    yield _add_offsets("group")
    yield _commit("offset", 3, 7)
    yield _commit("offset, earlier epoch", 3, 7, later=-1)
    yield _commit("offset of an unknown generation", 3, 7, generation=3, member="m")
    yield _committed("pending, stable", stable=True)
    yield _committed("pending, unstable", stable=False)
    yield _end("abort with offsets, old", 4, False)
    yield _end("abort again, old", 4, False)
    yield _describe("after an abort, old")
    yield _committed("after an abort", stable=True)


def _new_clients() -> Iterator[Case]:
    """Yield clients of transaction version 2, which get an epoch for each transaction."""
    yield _end("commit of nothing, new", 5, True)
    yield _end("abort of nothing, new", 5, False)
    yield _write("adds its partition", 12, 2)
    yield _commit("adds its group", 5, 9)
    yield _describe("with a transaction, new")
    yield _write("with a later epoch", 12, 2, 1, later=1)
    yield _end("commit, later epoch", 5, True, later=1)
    yield _end("commit, new", 5, True)
    yield _end("commit again, with the epoch before", 5, True, later=-1)
    yield _end("abort, with the epoch before", 5, False, later=-1)
    yield _end("commit again, with an old epoch", 5, True, later=-2)
    yield _end("commit without a transaction, new", 5, True)
    yield _describe("after a commit, new")
    yield _committed("after a commit", stable=True)
    yield _write("of the epoch before", 12, 2, 1, later=-1)
    yield _write("of the next transaction", 12, 1)
    yield _end("abort, new", 5, False)
    yield _end("abort again, with the epoch before", 5, False, later=-1)
    yield _describe("after an abort, new")


def _fences() -> Iterator[Case]:
    """Fence a producer with an open transaction: its next epoch shows how."""
    yield _write("before the fence", 12, 0)
    yield _init("takes over an open transaction")
    yield _describe("after the fence")
    yield _write("after the fence, with the fenced epoch", 12, 0, later=-1)
    yield _write("after the fence", 12, 0)
    yield _asking(
        "aborts its own transaction",
        4,
        InitProducerIdRequest,
        lambda seen: InitProducerIdRequest(
            transactional_id="tx",
            transaction_timeout=TIMEOUT_MS,
            producer_id=seen.number(ID),
            producer_epoch=seen.number(EPOCH),
        ),
        _remember,
    )
    yield _add("after the second fence", {TOPIC: [0]})
    yield _init("takes over from an old client")
    yield _describe("after the third fence")


def _mark(name: str, version: int, *, topic: str = TOPIC, partition: int = 0, epoch: int) -> Case:
    def ask(seen: Seen) -> Message:
        marker = WritableTxnMarker(
            producer_id=77_777,
            producer_epoch=epoch,
            transaction_result=False,
            topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[partition])],
            coordinator_epoch=1,
            transaction_version=2,
        )
        return WriteTxnMarkersRequest(markers=[marker])

    return asking(name, version, WriteTxnMarkersRequest, ask)


def _markers() -> Iterator[Case]:
    for version in (1, 2):
        yield _mark("unknown topic", version, topic="nowhere", epoch=1)
        yield _mark("unknown partition", version, partition=9, epoch=1)
        yield _mark("of a new producer, or again", version, epoch=3)
        yield _mark("earlier epoch", version, epoch=2)


def _lists() -> Iterator[Case]:
    for version in (0, 1, 2):
        yield case("all", version, ListTransactionsRequest())
        ongoing = ListTransactionsRequest(state_filters=["Ongoing", "Unheard"])
        yield case("by state", version, ongoing)
    pattern = ListTransactionsRequest(transactional_id_pattern="t.*")
    yield case("by pattern", 2, pattern)
    yield case("bad pattern", 2, ListTransactionsRequest(transactional_id_pattern="("))
    unknown = DescribeTransactionsRequest(transactional_ids=["nobody", ""])
    yield case("unknown ids", 0, unknown)
