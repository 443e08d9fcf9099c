"""Copies, remote reads, retention and deletion of a tiered topic on one broker."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.broker.remote_tier import leftovers
from ottla.controller.configs import SET, ConfigChange, ConfigOperation, alter_configs
from ottla.controller.topics import UnwantedTopic, delete_topics
from ottla.log.segment.file_slice import FileSlice
from ottla.log.store.log_store import parent_of
from ottla.memory_files import MemoryFiles
from ottla.model.config_resources import ResourceType
from ottla.model.errors import ErrorCode
from ottla.model.ids import REMOTE_LOG_METADATA_TOPIC
from ottla.ports import Files, ObjectStoreDenied, ObjectStoreUnavailable
from ottla.records.batch import parse_header
from ottla.replication.partition import Partition
from ottla.sim.object_store import StoreFaults
from ottla.testing.fakes import START_MS
from ottla.testing.faulty_files import FaultyFiles
from ottla.tiered import object_cache, remote_fetch
from ottla.tiered.layout import log_start_key, object_key, partition_prefix
from ottla.tiered.metadata_records import SegmentState, SegmentUpdate
from ottla.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from ottla.wire.messages.fetch import ReplicaState
from tests.support.broker import Client, partition_image
from tests.support.tiered_broker import AWAY, TieredBroker, names
from tests.support.transactional_broker import markers, produce, with_coordinator
from tests.support.transactions import transactional

COUNT = 21


def filled(broker: TieredBroker, client: Client, count: int = COUNT) -> None:
    broker.fill(client, count)
    broker.work()


def alter(broker: TieredBroker, **settings: str) -> ErrorCode:
    codes: list[ErrorCode] = []
    operations = [
        ConfigOperation(name.replace("_", "."), SET, value) for name, value in settings.items()
    ]

    def decide(image: Any) -> Any:
        change = ConfigChange(ResourceType.TOPIC, "t", operations)
        decision = yield from alter_configs(image, broker.node.config, [change])
        codes.extend(ErrorCode.NONE if r.error is None else r.error.code for r in decision.results)
        return decision.records

    broker.node.controller.decide(decide, lambda failure: None)
    broker.node.settle()
    return codes[0]


def restarted(broker: TieredBroker, files: Files | None = None) -> TieredBroker:
    """Return a new life of a broker after it was stopped."""
    broker.node.shutdown()
    return TieredBroker(broker.store, broker.node.ports.files, broker.clock)


# -- copies ------------------------------------------------------------------------------


def test_closed_segments_are_copied_and_then_deleted_locally(
    broker: TieredBroker, partition: Partition, client: Client
) -> None:
    filled(broker, client)
    log = partition.online_log()
    copied = len(log.segments) - 1
    assert len(broker.manifests) == COUNT // 2
    assert names(broker.store.objects) == {
        "log", "index", "timeindex", "snapshot", "leader-epoch-checkpoint", "manifest"
    }  # fmt: skip
    assert copied <= 2, "the others are deleted"
    assert log.log_start_offset == 0
    assert log.local_log_start_offset > 10
    assert log.highest_remote_offset == log.active.base_offset - 1
    assert broker.consume(client) == list(range(COUNT))
    assert REMOTE_LOG_METADATA_TOPIC in broker.node.image.topics
    assert not broker.reports


def test_nothing_is_deleted_locally_while_the_store_is_away(
    broker: TieredBroker, partition: Partition, client: Client
) -> None:
    broker.store.faults = AWAY
    filled(broker, client)
    log = partition.online_log()
    broker.work(5000)
    assert (log.local_log_start_offset, broker.store.objects) == (0, {})
    assert any("cannot be copied" in report for report in broker.reports)
    assert len(broker.reports) <= 3, "not every attempt is told"
    assert broker.consume(client) == list(range(COUNT))
    broker.store.faults = StoreFaults()
    broker.work(100_000)
    assert log.local_log_start_offset > 10
    assert broker.consume(client) == list(range(COUNT))


def test_a_store_that_fails_now_and_then_gets_everything_once(
    broker: TieredBroker, partition: Partition, client: Client
) -> None:
    broker.store.faults = StoreFaults(unavailable=0.1, lost=0.1, slow=0.2)
    filled(broker, client)
    broker.work(60_000)
    broker.store.faults = StoreFaults()
    broker.work(60_000)
    assert partition.online_log().local_log_start_offset > 10
    assert len(broker.manifests) == COUNT // 2
    assert broker.consume(client) == list(range(COUNT))


def test_a_segment_that_cannot_be_read_takes_its_log_directory_offline() -> None:
    """Found by seed 310200: the error ended the broker."""
    files = FaultyFiles(MemoryFiles())
    broker = TieredBroker(files=files, log_dirs="/one,/two")
    broker.topic("other")
    partition = broker.tiered_topic()
    assert parent_of(partition.online_log()) == "/two", "the metadata is in the other directory"
    broker.fill(broker.connect(), COUNT)
    files.fail("open", path="/two/t-0/*.index")
    broker.work()
    assert partition.log is None
    assert list(broker.node.store.offline_dirs) == ["/two"]
    broker.work()
    assert not broker.store.objects
    assert broker.node.topics.partition_named("other", 0).log is not None


def test_open_transactions_are_not_copied(
    broker: TieredBroker, partition: Partition, client: Client
) -> None:
    with_coordinator(broker)
    broker.fill(client, 4)
    client.ask(produce(transactional(7)), 11)
    broker.fill(client, 8)
    broker.work()
    log = partition.online_log()
    assert log.highest_remote_offset < 4
    client.ask(markers(7, commit=True))
    broker.work()
    assert log.highest_remote_offset == log.active.base_offset - 1


def test_copies_hold_their_rate(partition: Partition) -> None:
    broker = TieredBroker(remote_log_manager_copy_max_bytes_per_second="500")
    broker.tiered_topic()
    client = broker.connect()
    broker.fill(client, COUNT)
    broker.work(5000)
    assert 3 <= len(broker.manifests) <= 6, "segments of 800 bytes, 500 bytes a second"
    broker.work(15_000)
    assert len(broker.manifests) == COUNT // 2


def test_a_restart_goes_on_where_it_was(
    broker: TieredBroker, partition: Partition, client: Client
) -> None:
    filled(broker, client)
    stored = set(broker.store.objects)
    again = restarted(broker)
    client = again.connect()
    assert again.consume(client) == list(range(COUNT))
    again.work()
    assert set(again.store.objects) == stored, "nothing is copied twice"
    again.node.ports.random.ids = 1000  # type: ignore[attr-defined]
    again.fill(client, 10)
    again.work()
    assert len(again.manifests) == (COUNT + 10) // 2
    assert again.consume(client) == list(range(COUNT + 10))


def test_a_start_without_checkpoints_finds_the_beginning(
    broker: TieredBroker, partition: Partition, client: Client
) -> None:
    """After a crash the log start offset is that of the first remote segment."""
    filled(broker, client)
    files = broker.node.ports.files
    for name in ("log-start-offset-checkpoint", ".kafka_cleanshutdown"):
        files.unlink(f"/data/{name}")
    again = TieredBroker(broker.store, files, broker.clock)
    client = again.connect()
    again.work()
    assert again.list_offset(client, -2) == (0, 0)
    assert again.consume(client) == list(range(COUNT))


def test_the_upload_of_a_killed_broker_is_cleaned_up(
    broker: TieredBroker, partition: Partition, client: Client
) -> None:
    broker.fill(client, COUNT)
    for _ in range(400):
        broker.pass_time(25)
        if broker.background.waiting and broker.store.objects:
            break
        if broker.background.waiting:
            broker.background.waiting.pop(0)()
    assert broker.store.objects
    assert not broker.manifests, "the upload has begun and not ended"
    killed = set(broker.store.objects)
    again = TieredBroker(broker.store, broker.node.ports.files, broker.clock)
    again.node.ports.random.ids = 1000  # type: ignore[attr-defined]
    client = again.connect()
    again.work()
    assert not killed & set(again.store.objects)
    assert len(again.manifests) == COUNT // 2
    assert again.consume(client) == list(range(COUNT))
    again.store.objects.update(dict.fromkeys(killed, b"x"))  # it was not dead yet
    again.pass_time(leftovers.AGAIN_AFTER_MS)
    again.fill(client, 4)
    again.work()
    assert not killed & set(again.store.objects)


# -- reads -------------------------------------------------------------------------------


def test_every_offset_can_be_read_from(
    broker: TieredBroker, partition: Partition, client: Client
) -> None:
    filled(broker, client)
    for offset in range(COUNT):
        assert broker.consume(client, offset) == list(range(offset, COUNT))


@pytest.mark.parametrize("chunk_bytes", [61, 100, 700])
def test_batches_may_lie_on_borders_of_chunks(
    monkeypatch: pytest.MonkeyPatch, chunk_bytes: int
) -> None:
    monkeypatch.setattr(object_cache, "CHUNK_BYTES", chunk_bytes)
    monkeypatch.setattr(remote_fetch, "CHUNK_BYTES", chunk_bytes)
    broker = TieredBroker()
    broker.tiered_topic()
    client = broker.connect()
    filled(broker, client)
    for offset in (0, 1, 5, 12):
        assert broker.consume(client, offset) == list(range(offset, COUNT))
    assert broker.list_offset(client, START_MS + 7) == (0, 7)


def test_records_are_sent_from_the_cache_without_a_copy(
    broker: TieredBroker, partition: Partition, client: Client
) -> None:
    filled(broker, client)
    broker.fetch(client, 3)
    assert broker.node.tier is not None
    remote = broker.node.tier.remote_log(partition, partition.online_log())
    assert remote is not None
    records = remote.read(3, 10_000, at_least_one=True)
    assert records is not None
    assert isinstance(records.content, FileSlice)
    assert parse_header(records.content.read(), 0).base_offset == 3


def test_a_large_batch_is_read_whole(broker: TieredBroker, partition: Partition) -> None:
    """Batches may be larger than what is read from the store at a time."""
    client = broker.connect()
    alter(broker, internal_segment_bytes="4000000", max_message_bytes="4000000")
    broker.fill(client, 3, size=2_500_000)
    alter(broker, internal_segment_bytes="1000")
    broker.fill(client, 8)
    broker.work()
    assert partition.online_log().local_log_start_offset >= 3
    assert broker.consume(client) == list(range(11))


def test_a_fetch_waits_for_the_store_and_not_for_new_records(
    broker: TieredBroker, partition: Partition, client: Client
) -> None:
    filled(broker, client)
    other = broker.connect()
    client.send(broker.fetch_request(0))
    broker.node.settle()
    broker.fill(other, 1)
    assert client.ids() == [], "what was written is not what it waits for"
    broker.background.run()
    broker.node.settle()
    broker.background.run()
    broker.node.settle()
    assert len(client.ids()) == 1
    assert not partition.watchers


def test_a_fetch_is_answered_in_time_if_the_store_is_slow(
    broker: TieredBroker, partition: Partition, client: Client
) -> None:
    filled(broker, client)
    client.send(broker.fetch_request(0))
    broker.pass_time(499)
    assert client.ids() == []
    broker.pass_time(2)
    ((_, response),) = client.replies()
    answer: Any = response
    assert answer.responses[0].partitions[0].error_code == 0
    assert not answer.responses[0].partitions[0].records
    assert broker.consume(client) == list(range(COUNT))


def test_reads_fail_with_an_error_while_the_store_is_away(
    broker: TieredBroker, partition: Partition, client: Client
) -> None:
    filled(broker, client)
    broker.store.faults = AWAY
    assert broker.fetch(client, 0).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    local = partition.online_log().local_log_start_offset
    assert broker.consume(client, local) == list(range(local, COUNT))
    assert partition.log is not None, "the local log is fine"
    broker.store.faults = StoreFaults()
    broker.pass_time(1001)
    assert broker.consume(client) == list(range(COUNT))


def test_a_lost_object_is_an_error_and_not_the_end(
    broker: TieredBroker, partition: Partition, client: Client
) -> None:
    filled(broker, client)
    key = next(key for key in sorted(broker.store.objects) if key.endswith(".log"))
    del broker.store.objects[key]
    assert broker.fetch(client, 0).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert broker.consume(client, 5) == list(range(5, COUNT))


def test_reads_of_committed_records_know_aborted_transactions(
    broker: TieredBroker, partition: Partition, client: Client
) -> None:
    """The marker is in a later segment than the records."""
    with_coordinator(broker)
    client.ask(produce(transactional(7)), 11)
    broker.fill(client, 6)
    client.ask(markers(7, commit=False))
    broker.fill(client, 10)
    broker.work()
    log = partition.online_log()
    assert log.local_log_start_offset > 8
    assert "txnindex" in names(broker.store.objects)
    answer = broker.fetch(client, 0, committed=True)
    assert [(a.producer_id, a.first_offset) for a in answer.aborted_transactions] == [(7, 0)]
    answer = broker.fetch(client, 8, committed=True)
    assert not answer.aborted_transactions
    assert broker.consume(client, committed=True) == broker.consume(client)


def test_a_follower_is_sent_to_the_tier(
    broker: TieredBroker, partition: Partition, client: Client
) -> None:
    filled(broker, client)
    partition.take_role(partition_image(leader_epoch=5), 1)
    state = ReplicaState(replica_id=2, replica_epoch=-1)
    answer = broker.fetch(client, 0, replica_state=state)
    assert answer.error_code == ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE
    start = partition.online_log().local_log_start_offset
    assert broker.fetch(client, start, replica_state=state).error_code == 0


@pytest.mark.parametrize("timestamp", [0, 3, 7, 12, 20])
def test_offsets_are_found_by_time_in_both_parts(
    broker: TieredBroker, partition: Partition, client: Client, timestamp: int
) -> None:
    filled(broker, client)
    assert broker.list_offset(client, START_MS + timestamp) == (0, timestamp)
    assert broker.list_offset(client, START_MS + COUNT) == (0, -1)


def test_special_offsets(broker: TieredBroker, partition: Partition, client: Client) -> None:
    filled(broker, client)
    log = partition.online_log()
    assert broker.list_offset(client, -1) == (0, COUNT)
    assert broker.list_offset(client, -2) == (0, 0)
    assert broker.list_offset(client, -4) == (0, log.local_log_start_offset)
    assert broker.list_offset(client, -5) == (0, log.active.base_offset - 1)
    assert broker.list_offset(client, -6) == (0, log.active.base_offset)


def test_a_lookup_by_time_ends_if_the_store_does_not_answer(
    broker: TieredBroker, partition: Partition, client: Client
) -> None:
    filled(broker, client)
    broker.store.faults = AWAY
    code, _ = broker.list_offset(client, START_MS + 3)
    assert code == ErrorCode.KAFKA_STORAGE_ERROR


# -- retention ---------------------------------------------------------------------------


def test_retention_by_size_counts_both_parts(
    broker: TieredBroker, partition: Partition, client: Client
) -> None:
    filled(broker, client)
    size = len(broker.manifests)
    assert alter(broker, retention_bytes="3000") == ErrorCode.NONE
    broker.work(5000)
    log = partition.online_log()
    assert 2 <= len(broker.manifests) < size
    assert log.log_start_offset > 0
    assert broker.list_offset(client, -2) == (0, log.log_start_offset)
    assert broker.consume(client, log.log_start_offset) == list(range(log.log_start_offset, COUNT))
    assert broker.fetch(client, 0).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_retention_by_time_reaches_the_remote_part(
    broker: TieredBroker, partition: Partition, client: Client
) -> None:
    filled(broker, client)
    assert alter(broker, retention_ms="60000") == ErrorCode.NONE
    broker.pass_time(120_000)
    broker.work(5000)
    log = partition.online_log()
    assert broker.manifests == []
    assert not [key for key in broker.store.objects if not key.endswith("log-start-offset")]
    assert log.log_start_offset == log.log_end_offset == COUNT, "also the active segment"


def test_deleted_records_are_deleted_remotely(
    broker: TieredBroker, partition: Partition, client: Client
) -> None:
    filled(broker, client)
    asked = DeleteRecordsPartition(partition_index=0, offset=5)
    topic = DeleteRecordsTopic(name="t", partitions=[asked])
    client.ask(DeleteRecordsRequest(topics=[topic], timeout=1000))
    broker.work()
    assert len(broker.manifests) == COUNT // 2 - 2, "offset 5 is in the third segment"
    assert broker.consume(client, 5) == list(range(5, COUNT))
    assert broker.fetch(client, 4).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    (key,) = [key for key in broker.store.objects if key.endswith("log-start-offset")]
    assert broker.store.objects[key] == b"5\n"


def test_records_are_deleted_up_to_the_middle_of_a_segment_that_is_not_copied_yet(
    broker: TieredBroker, partition: Partition, client: Client
) -> None:
    filled(broker, client)
    log = partition.online_log()
    broker.fill(client, 1)
    assert log.active.base_offset < COUNT
    log.advance_log_start(COUNT)
    broker.fill(client, 6)
    broker.work()
    assert log.highest_remote_offset == log.active.base_offset - 1 > COUNT
    assert not broker.reports
    assert broker.consume(client, COUNT) == list(range(COUNT, COUNT + 7))
    (key,) = [key for key in broker.store.objects if key.endswith("log-start-offset")]
    assert broker.store.objects[key] == b"%d\n" % COUNT, "the segment begins before it"
    again = TieredBroker(broker.store, broker.node.ports.files, broker.clock)
    again.work()
    assert again.consume(again.connect(), COUNT) == list(range(COUNT, COUNT + 7))


def test_a_deleted_topic_leaves_no_objects(
    broker: TieredBroker, partition: Partition, client: Client
) -> None:
    filled(broker, client)
    delete_topic(broker)
    broker.work()
    assert broker.store.objects == {}
    again = restarted(broker)
    again.work()
    assert again.store.objects == {}


def test_a_topic_that_is_deleted_after_all_its_records_leaves_no_objects(
    broker: TieredBroker, partition: Partition, client: Client
) -> None:
    """The store had the log start offset and nothing else, and kept it."""
    filled(broker, client)
    partition.online_log().advance_log_start(5)
    broker.work()
    alter(broker, retention_ms="60000")
    broker.pass_time(120_000)
    broker.work(5000)
    assert set(broker.store.objects) == {log_start_key(prefix(partition))}
    delete_topic(broker)
    broker.work()
    assert broker.store.objects == {}


def test_a_topic_is_deleted_by_a_broker_that_may_not_list_objects(
    broker: TieredBroker, partition: Partition, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def deny(name: str, after: str, limit: int, done: Any) -> None:
        broker.background.submit(lambda: None, lambda _: done(ObjectStoreDenied("no")))

    monkeypatch.setattr(broker.store, "list", deny)
    filled(broker, client)
    partition.online_log().advance_log_start(5)
    broker.work()
    assert names(broker.store.objects) > {log_start_key(prefix(partition))}
    delete_topic(broker)
    broker.work()
    assert broker.store.objects == {}
    assert not broker.reports


@pytest.mark.parametrize("is_late", [False, True])
def test_the_log_start_offset_of_a_deleted_topic_is_not_stored(
    broker: TieredBroker,
    partition: Partition,
    client: Client,
    is_late: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Storing it takes so long that the deletion of the topic ends before."""
    filled(broker, client)
    puts: list[Any] = []
    put = broker.store.put
    key = log_start_key(prefix(partition))

    def slow_put(name: str, *more: Any) -> None:
        if name == key:
            puts.append(lambda: put(name, *more))
        else:
            put(name, *more)

    monkeypatch.setattr(broker.store, "put", slow_put)
    partition.online_log().advance_log_start(5)
    broker.work()
    assert len(puts) == 1
    delete_topic(broker)
    if is_late:
        broker.work()
    puts[0]()
    broker.work()
    assert broker.store.objects == {}


def prefix(partition: Partition) -> str:
    return partition_prefix("t", partition.topic.topic_id, 0)


def orphan(partition: Partition, number: int, *kinds: str) -> list[str]:
    """Return the keys of objects of a segment that nobody knows."""
    segment_id = b"orphan" + bytes([number]) * 10
    return [object_key(prefix(partition), number, segment_id, kind) for kind in kinds]


def test_objects_that_belong_to_no_segment_are_deleted(
    broker: TieredBroker, partition: Partition, client: Client
) -> None:
    """Those with a manifest stay: they can be read, and may be all that is left of records."""
    unknown = orphan(partition, 3, "log", "index") + orphan(partition, 4, "snapshot")
    whole = orphan(partition, 5, "index", "log", "manifest", "snapshot", "timeindex")
    broker.store.objects.update(dict.fromkeys(unknown + whole, b"x"))
    filled(broker, client)
    left = set(broker.store.objects)
    assert not left & set(unknown)
    assert set(whole) <= left
    assert len(broker.manifests) == COUNT // 2 + 1
    assert broker.consume(client) == list(range(COUNT))
    delete_topic(broker)
    broker.work()
    assert broker.store.objects == {}, "nobody needs anything of the topic"


def test_objects_are_looked_for_again_if_the_listing_failed(
    broker: TieredBroker, partition: Partition, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    (unknown,) = orphan(partition, 3, "log")
    broker.store.objects[unknown] = b"x"
    lists: list[str] = []

    def fail(name: str, after: str, limit: int, done: Any) -> None:
        lists.append(name)
        broker.background.submit(lambda: None, lambda _: done(ObjectStoreUnavailable("away")))

    monkeypatch.setattr(broker.store, "list", fail)
    filled(broker, client)
    assert len(lists) == 1, "copies go on meanwhile"
    assert len(broker.manifests) == COUNT // 2
    assert unknown in broker.store.objects
    monkeypatch.undo()
    broker.pass_time(leftovers.AGAIN_AFTER_MS)
    broker.fill(client, 4)
    broker.work()
    assert unknown not in broker.store.objects


def delete_topic(broker: TieredBroker) -> None:
    def decide(image: Any) -> Any:
        unwanted = [UnwantedTopic(name="t")]
        decision = yield from delete_topics(image, broker.node.config, unwanted)
        return decision.records

    broker.node.controller.decide(decide, lambda failure: None)
    broker.node.settle()


def test_the_deletion_of_a_topic_goes_on_after_a_restart(
    broker: TieredBroker, partition: Partition, client: Client
) -> None:
    filled(broker, client)
    broker.store.faults = AWAY
    delete_topic(broker)
    broker.work(500)
    assert broker.store.objects
    again = restarted(broker)
    again.work()
    assert again.store.objects == {}


def test_the_tier_of_a_topic_is_turned_off_only_with_its_segments(
    broker: TieredBroker, partition: Partition, client: Client
) -> None:
    filled(broker, client)
    assert alter(broker, remote_storage_enable="false") == ErrorCode.INVALID_CONFIG
    off = {"remote_storage_enable": "false", "remote_log_delete_on_disable": "true"}
    assert alter(broker, **off) == ErrorCode.NONE
    log = partition.online_log()
    local = log.local_log_start_offset
    assert log.log_start_offset == local > 0
    broker.work()
    assert broker.store.objects == {}
    assert broker.consume(client, local) == list(range(local, COUNT))
    assert broker.fetch(client, 0).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_copies_can_be_stopped_and_the_remote_part_stays(
    broker: TieredBroker, partition: Partition, client: Client
) -> None:
    filled(broker, client)
    copied = broker.manifests
    stop = {"remote_log_copy_disable": "true", "local_retention_bytes": "-2"}
    assert alter(broker, **stop) == ErrorCode.NONE
    broker.fill(client, 10)
    broker.work()
    assert broker.manifests == copied
    assert broker.consume(client) == list(range(COUNT + 10))


OFF = {"remote_storage_enable": "false", "remote_log_delete_on_disable": "true"}
ON = {"remote_storage_enable": "true", "remote_log_delete_on_disable": "false"}


def test_the_tier_is_turned_off_before_the_high_watermark_is_known(
    broker: TieredBroker, partition: Partition, client: Client
) -> None:
    """After a crash, a follower knows the high watermark only when it has fetched."""
    filled(broker, client)
    log = partition.online_log()
    local = log.local_log_start_offset
    log.high_watermark = 0
    assert alter(broker, **OFF) == ErrorCode.NONE
    assert (log.log_start_offset, log.high_watermark) == (local, local)


class SlowWrites:
    """Keeps records about finished copies until they are let go."""

    def __init__(self, broker: TieredBroker, monkeypatch: pytest.MonkeyPatch) -> None:
        tier = broker.node.tier
        assert tier is not None
        self.held: list[Any] = []
        write = tier.metadata.write

        def hold(record: Any, done: Any) -> None:
            is_update = isinstance(record, SegmentUpdate)
            if is_update and record.state == SegmentState.COPY_FINISHED:
                self.held.append(lambda: write(record, done))
            else:
                write(record, done)

        monkeypatch.setattr(tier.metadata, "write", hold)

    def let_go(self) -> None:
        for write in self.held:
            write()


@pytest.mark.parametrize("is_late", [False, True])
def test_a_copy_ends_if_its_topic_is_deleted_before_the_metadata_says_that_it_is_finished(
    broker: TieredBroker,
    partition: Partition,
    client: Client,
    is_late: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It held one of the few turns of tasks for ever."""
    writes = SlowWrites(broker, monkeypatch)
    filled(broker, client)
    assert len(writes.held) == 1
    assert broker.store.objects
    delete_topic(broker)
    if is_late:
        broker.work()
    writes.let_go()
    broker.work()
    assert broker.node.tier is not None
    assert broker.node.tier.tasks_running == 0
    assert broker.store.objects == {}


@pytest.mark.parametrize("is_late", [False, True])
def test_a_copy_ends_if_the_tier_is_turned_off_before_the_metadata_says_that_it_is_finished(
    broker: TieredBroker,
    partition: Partition,
    client: Client,
    is_late: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    writes = SlowWrites(broker, monkeypatch)
    filled(broker, client)
    assert alter(broker, **OFF) == ErrorCode.NONE
    if is_late:
        broker.work()
    writes.let_go()
    broker.work()
    assert broker.node.tier is not None
    assert broker.node.tier.tasks_running == 0
    assert broker.store.objects == {}
    monkeypatch.undo()
    assert alter(broker, **ON) == ErrorCode.NONE
    broker.work()
    assert broker.manifests
    assert broker.consume(client) == list(range(COUNT))


def test_a_tier_that_is_turned_on_while_its_segments_are_deleted_loses_nothing(
    broker: TieredBroker, partition: Partition, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of the deletion made the brokers forget what had been copied meanwhile."""
    filled(broker, client)
    log = partition.online_log()
    local, old = log.local_log_start_offset, set(broker.store.objects)
    deletes: list[Any] = []
    delete = broker.store.delete
    monkeypatch.setattr(broker.store, "delete", lambda *more: deletes.append(more))
    assert alter(broker, **OFF) == ErrorCode.NONE
    broker.work()
    assert len(deletes) == 1
    assert alter(broker, **ON) == ErrorCode.NONE
    broker.fill(client, COUNT)
    broker.work()
    monkeypatch.undo()
    delete(*deletes[0])
    broker.work(10_000)
    assert log.local_log_start_offset > local
    assert broker.consume(client, local) == list(range(local, 2 * COUNT))
    assert broker.manifests
    assert not old & set(broker.store.objects)


def test_an_upload_ends_if_the_tier_is_turned_off_and_on_meanwhile(
    broker: TieredBroker, partition: Partition, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody told the copy of the replica before any more what the metadata says."""
    puts: list[Any] = []
    put = broker.store.put
    monkeypatch.setattr(broker.store, "put", lambda *more: puts.append(more))
    filled(broker, client)
    assert puts
    assert alter(broker, **OFF) == ErrorCode.NONE
    broker.work()
    assert alter(broker, **ON) == ErrorCode.NONE
    broker.work()
    monkeypatch.undo()
    for each in puts:
        put(*each)
    broker.work(10_000)
    assert broker.node.tier is not None
    assert broker.node.tier.tasks_running == 0
    assert len({key.partition(".")[0] for key in broker.store.objects}) == len(broker.manifests)
    assert broker.manifests
    assert broker.consume(client) == list(range(COUNT))
