"""A compacted topic in the remote tier on one broker: copies, rewrites, deletions, crashes."""

from __future__ import annotations

import pytest

from ottla.log.cleaner.cleanable import first_dirty_offset
from ottla.replication.partition import Partition
from ottla.sim.object_store import StoreFaults
from ottla.tiered.metadata_records import RemotePartition, SegmentState
from ottla.tiered.remote_cleanable import remote_first_dirty_offset
from ottla.tiered.remote_segments import RemoteSegments
from tests.support.broker import Client
from tests.support.cleaner import Seen, last_values
from tests.support.tiered_broker import AWAY, TieredBroker
from tests.support.transactional_broker import markers, produce, with_coordinator
from tests.support.transactions import transactional
from tests.unit.broker.remote_tier.test_tiered_topic import alter

COMPACTED = {
    "cleanup_policy": "compact",
    "min_cleanable_dirty_ratio": "0.01",
    "delete_retention_ms": "1000000000",
    "file_delete_delay_ms": "2000",
}
FILL = [("fill", str(number)) for number in range(4)]
"""Ends the active segment."""


@pytest.fixture
def broker() -> TieredBroker:
    return TieredBroker(log_cleaner_backoff_ms="500")


@pytest.fixture
def partition(broker: TieredBroker) -> Partition:
    return broker.tiered_topic(**COMPACTED)


def segments_of(broker: TieredBroker, partition: Partition) -> RemoteSegments:
    topic = partition.topic
    assert broker.node.tier is not None
    found = broker.node.tier.metadata.segments_of(RemotePartition("t", topic.topic_id, 0))
    assert found is not None
    return found


def chain(broker: TieredBroker, partition: Partition) -> list[tuple[int, int, int]]:
    """Return the first and last offset of each remote segment, and up to where it is clean."""
    log = partition.online_log()
    found = segments_of(broker, partition).chain(log.log_start_offset, log.leader_epochs)
    return [(each.start_offset, each.end_offset, each.clean_upto) for each in found]


def keys_of(records: list[Seen]) -> list[bytes]:
    return [record.key or b"" for record in records]


def test_clean_segments_are_copied_and_rewritten_when_newer_keys_come(
    broker: TieredBroker, partition: Partition, client: Client
) -> None:
    log = partition.online_log()
    broker.write(client, *((f"key{n}", f"old{n}") for n in range(20)))
    broker.work()
    assert log.local_log_start_offset > 10, "the local part is short"
    assert chain(broker, partition)[-1][1] == log.highest_remote_offset
    before = broker.manifests
    broker.write(client, *((f"key{n}", f"new{n}") for n in range(10)))
    broker.write(client, *((f"key{n}", f"newer{n}") for n in range(10)))
    broker.work(6000)
    found = broker.read(client)
    assert last_values(found) == {
        b"key%d" % n: (b"newer%d" if n < 10 else b"old%d") % n for n in range(20)
    }
    assert [each.offset for each in found] == sorted(each.offset for each in found)
    values = [each.value or b"" for each in found]
    assert not [v for v in values if v in {b"old%d" % n for n in range(10)}], values
    assert not set(before[:5]) & set(broker.manifests), "what was replaced is deleted"
    assert set(before[5:]) < set(broker.manifests), "what stays as it is is not stored again"
    assert min(clean for _, _, clean in chain(broker, partition)) > 20
    assert not broker.reports


def test_segments_of_which_everything_stays_are_not_stored_again(
    broker: TieredBroker, partition: Partition, client: Client
) -> None:
    broker.write(client, *((f"key{n}", "old") for n in range(20)))
    broker.work()
    before, copies = broker.manifests, chain(broker, partition)
    assert broker.node.tier is not None
    metrics = broker.node.tier.metrics
    cleans = metrics.cleans
    broker.write(client, *((f"other{n}", "new") for n in range(20)), *FILL)
    broker.work(8000)
    assert metrics.cleans > cleans
    assert metrics.cleaned_bytes_read > 0
    assert metrics.cleaned_bytes_written == 0
    assert set(before) < set(broker.manifests)
    assert min(clean for _, _, clean in chain(broker, partition)) > copies[-1][1]
    assert len(last_values(broker.read(client))) == 41
    again = TieredBroker(broker.store, broker.node.ports.files, broker.clock)
    again.work(1000)
    found = again.node.topics.partition_named("t", 0)
    assert chain(again, found) == chain(broker, partition), "a start reads the same"


def test_a_copy_that_is_under_way_is_not_clean_beyond_its_beginning(
    broker: TieredBroker, partition: Partition, client: Client
) -> None:
    """It stores what newer keys have removed from the local part since: an erase must wait."""
    log = partition.online_log()
    broker.store.faults = AWAY
    broker.write(client, *((f"key{n}", "old") for n in range(8)))
    broker.work()
    (copy,) = segments_of(broker, partition).in_state(SegmentState.COPY_STARTED)
    broker.write(client, *((f"key{n}", "new") for n in range(8)), *FILL)
    broker.work()
    wall_ms = broker.node.clock.wall_ms
    assert first_dirty_offset(log) > copy.clean_upto > copy.end_offset
    segments = segments_of(broker, partition)
    assert remote_first_dirty_offset(log, segments, wall_ms()) == copy.clean_upto
    broker.store.faults = StoreFaults()
    broker.work(20_000)
    segments = segments_of(broker, partition)
    assert remote_first_dirty_offset(log, segments, wall_ms()) == first_dirty_offset(log)
    assert b"old" not in [record.value for record in broker.read(client)]


def test_a_topic_that_is_not_compacted_any_more_is_left_as_it_is(
    broker: TieredBroker, partition: Partition, client: Client
) -> None:
    broker.write(client, *((f"key{n}", "old") for n in range(20)))
    broker.work()
    alter(broker, cleanup_policy="delete")
    before = broker.manifests
    broker.write(client, *((f"key{n}", "new") for n in range(20)))
    broker.work(6000)
    assert set(before) < set(broker.manifests)
    assert len(broker.read(client)) == 40


def test_a_topic_that_becomes_compacted_is_rewritten(broker: TieredBroker) -> None:
    partition = broker.tiered_topic(**{**COMPACTED, "cleanup_policy": "delete"})
    client = broker.connect()
    broker.write(client, *((f"key{n % 5}", f"v{n}") for n in range(20)))
    broker.work()
    assert len(broker.read(client)) == 20
    assert {clean for _, _, clean in chain(broker, partition)} == {-1}
    alter(broker, cleanup_policy="compact")
    broker.work(6000)
    found = broker.read(client)
    assert last_values(found) == {b"key%d" % n: b"v%d" % (15 + n) for n in range(5)}
    assert len(found) < 9, found


def test_every_offset_can_be_read_from_at_every_moment(
    broker: TieredBroker, partition: Partition, client: Client
) -> None:
    """Also while segments are replaced: the last value of each key is always there."""
    broker.write(client, *((f"key{n}", "old") for n in range(20)))
    broker.work()
    broker.write(client, *((f"key{n % 7}", f"v{n}") for n in range(30)))
    want = {b"key%d" % n: b"old" for n in range(7, 20)}
    want |= {b"key%d" % (n % 7): b"v%d" % n for n in range(23, 30)}
    for moment in range(200):
        broker.pass_time(25)
        broker.background.run()
        if moment % 4 == 0:
            found = broker.read(client)
            assert last_values(found) == want
            middle = found[len(found) // 2].offset
            assert broker.read(client, middle - 1)[-1] == found[-1]
            assert broker.read(client, middle)[0].offset == middle


def test_where_compaction_left_nothing_in_the_tier_local_reads_know_aborted_transactions(
    broker: TieredBroker, partition: Partition, client: Client
) -> None:
    with_coordinator(broker)
    broker.write(client, *(("key", f"v{n}") for n in range(20)))
    broker.work()
    broker.write(client, *(("key", f"v{n}") for n in range(20, 26)))
    broker.work(6000)
    log = partition.online_log()
    assert chain(broker, partition)[0] == (0, 17, 24)
    log.truncate_fully(18, 0)  # like a new leader, whose local log is not cleaned
    client.ask(produce(transactional(7)), 11)
    client.ask(markers(7, commit=False))
    broker.write(client, ("key", "newest"))
    for offset in (0, 10, 18):
        assert [each.offset for each in broker.read(client, offset, committed=True)] == [20]


def test_a_tombstone_stays_until_the_remote_part_is_clean(broker: TieredBroker) -> None:
    """Otherwise the value that it deletes would be the last one again."""
    partition = broker.tiered_topic(**{**COMPACTED, "delete_retention_ms": "0"})
    client = broker.connect()
    broker.write(client, ("gone", "value"), *((f"key{n}", "v") for n in range(20)))
    broker.work()
    assert partition.online_log().local_log_start_offset > 5
    broker.store.faults = AWAY
    broker.write(client, ("gone", None), *((f"more{n}", "v") for n in range(20)))
    broker.work(6000)
    broker.write(client, *((f"again{n}", "v") for n in range(6)))
    broker.work(6000)
    broker.store.faults = StoreFaults()
    for _ in range(300):
        broker.work(100)
        assert b"gone" not in last_values(broker.read(client))
    broker.write(client, *((f"again{n}", "w") for n in range(20)))
    broker.work(20_000)
    broker.write(client, *((f"again{n}", "x") for n in range(20)))
    broker.work(20_000)
    assert b"gone" not in keys_of(broker.read(client)), "in the end the tombstone goes too"
    assert not [key for key, content in broker.store.objects.items() if b"gone" in content]


def test_readers_in_the_middle_of_an_old_segment_have_time_to_finish_it(
    broker: TieredBroker, partition: Partition, client: Client
) -> None:
    alter(broker, file_delete_delay_ms="10000")
    broker.write(client, *((f"key{n}", "old") for n in range(20)))
    broker.work()
    before = set(broker.manifests)
    broker.write(client, *((f"key{n}", "new") for n in range(20)))
    broker.work(5000)
    segments = segments_of(broker, partition)
    assert segments.replaced
    assert before <= set(broker.manifests), "the objects are still there"
    broker.work(12_000)
    assert not segments.replaced
    assert not before & set(broker.manifests)


def test_retention_does_not_apply_to_topics_that_are_only_compacted(broker: TieredBroker) -> None:
    """Local segments go when they are remote, also by time; nothing else does."""
    partition = broker.tiered_topic(
        **{**COMPACTED, "retention_ms": "20000", "local_retention_ms": "2000"}
    )
    client = broker.connect()
    broker.write(client, *((f"key{n}", "v") for n in range(20)))
    broker.work(40_000)
    log = partition.online_log()
    assert (log.log_start_offset, len(log.segments)) == (0, 1)
    assert len(broker.read(client)) == 20
    alter(broker, cleanup_policy="compact,delete")
    broker.work(5000)
    assert log.log_start_offset == log.active.base_offset
    broker.work(5000)
    assert not broker.manifests


def test_without_copies_a_compacted_log_keeps_what_is_not_remote(broker: TieredBroker) -> None:
    partition = broker.tiered_topic(**COMPACTED)
    client = broker.connect()
    alter(broker, remote_log_copy_disable="true", local_retention_bytes="-2", retention_bytes="500")
    broker.write(client, *((f"key{n}", "v") for n in range(20)))
    broker.work(10_000)
    assert partition.online_log().log_start_offset == 0
    assert len(broker.read(client)) == 20


def test_deleted_records_stay_deleted(
    broker: TieredBroker, partition: Partition, client: Client
) -> None:
    broker.write(client, *((f"key{n}", "old") for n in range(20)))
    broker.work()
    log = partition.online_log()
    log.advance_log_start(5)
    broker.write(client, *((f"key{n}", "new") for n in range(10, 20)))
    broker.work(8000)
    assert broker.read(client, 5)[0].offset == 5
    assert last_values(broker.read(client, 5)) == {
        b"key%d" % n: b"new" if n >= 10 else b"old" for n in range(5, 20)
    }


def test_a_store_that_fails_delays_a_rewrite_and_loses_nothing(
    broker: TieredBroker, partition: Partition, client: Client
) -> None:
    broker.write(client, *((f"key{n}", "old") for n in range(20)))
    broker.work()
    broker.write(client, *((f"key{n}", "new") for n in range(20)), *FILL)
    broker.store.faults = StoreFaults(unavailable=0.2, lost=0.2, slow=0.3)
    broker.work(60_000)
    broker.store.faults = StoreFaults()
    broker.work(120_000)
    want = {b"key%d" % n: b"new" for n in range(20)}
    assert last_values(broker.read(client)).items() >= want.items()
    assert b"old" not in [record.value for record in broker.read(client)]
    known = {segment.hex() for segment in segments_of(broker, partition).segments}
    assert len(broker.manifests) == len(known), "no object is left that nobody knows"


@pytest.mark.parametrize("steps", [*range(1, 40, 3), 60, 80])
def test_a_crash_in_the_middle_of_a_rewrite_loses_nothing(
    broker: TieredBroker, partition: Partition, client: Client, steps: int
) -> None:
    broker.write(client, *((f"key{n}", "old") for n in range(20)))
    broker.work()
    broker.write(client, *((f"key{n}", "new") for n in range(20)), *FILL)
    tier = broker.node.tier
    assert tier is not None
    for _ in range(2000):  # until the first rewrite has begun
        broker.pass_time(25)
        if tier.cleaning is not None:
            break
        broker.background.run()
    assert tier.cleaning is not None
    for _ in range(steps):
        if broker.background.waiting:
            broker.background.waiting.pop(0)()
        broker.node.settle()
        broker.pass_time(1)
    again = TieredBroker(
        broker.store, broker.node.ports.files, broker.clock, log_cleaner_backoff_ms="500"
    )
    again.node.ports.random.ids = 1000  # type: ignore[attr-defined]
    client = again.connect()
    want = {b"key%d" % n: b"new" for n in range(20)} | {b"fill": b"3"}
    again.work(1000)
    assert last_values(again.read(client)) == want
    again.work(20_000)
    found = again.read(client)
    assert last_values(found) == want
    assert b"old" not in [record.value for record in found]
    partition = again.node.topics.partition_named("t", 0)
    assert len(again.manifests) == len(segments_of(again, partition).segments)
