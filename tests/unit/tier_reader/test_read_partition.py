"""Reading remote segments without a broker: the same as reading the log they come from."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import pytest

from ottla.config.topic import LogConfig
from ottla.log.log import Log
from ottla.ports import ObjectNotFound
from ottla.server.object_stores.blocking_store import BlockingStore, open_blocking_store
from ottla.tier_reader import DamagedObject, MissingRecords, NoSuchTopic, RemotePartition
from ottla.tier_reader import objects as objects_module
from ottla.tier_reader.listing import find_topic_id, list_partition
from ottla.tier_reader.topic import RemoteTopic
from ottla.tiered.layout import (
    INDEX,
    LOG,
    MANIFEST,
    TIME_INDEX,
    TXN_INDEX,
    encode_log_start,
    log_start_key,
)
from ottla.tiered.layout import partition_prefix as prefix_of
from ottla.tiered.manifest import Manifest, encode_manifest
from tests.support.log import NOW, TOPIC_ID, append, append_all, batch_of, new_log, read_all
from tests.support.tier import upload
from tests.support.transactions import append_in_transaction, end_transaction, transactional

CONFIG = LogConfig(segment_bytes=1000, index_interval_bytes=200, retention_ms=-1)


@pytest.fixture
def store() -> BlockingStore:
    return open_blocking_store("memory:")


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects_module, "FIRST_CHUNK", 100)
    monkeypatch.setattr(objects_module, "MAX_CHUNK", 700)


def plain_log(batches: int = 60) -> Log:
    log = new_log(CONFIG)
    for number in range(batches):
        append_all(log, batch_of(3, timestamp=NOW + number * 10, value=b"%d" % number))
    return log


def partition_of(store: BlockingStore) -> RemotePartition:
    return RemoteTopic(store, "t", TOPIC_ID).partition(0)


def offsets(batches: Iterator[object]) -> list[int]:
    return [batch.header.base_offset for batch in batches]  # type: ignore[attr-defined]


def closed(log: Log) -> int:
    return log.segments.active.base_offset


def test_all_batches_byte_for_byte(store: BlockingStore) -> None:
    log = plain_log()
    upload(store, log)
    partition = partition_of(store)
    assert (partition.start_offset, partition.next_offset) == (0, closed(log))
    assert len(partition.segments) == len(list(log)) - 1 > 2
    expected = [batch for batch in read_all(log) if batch.last_offset < closed(log)]
    found = list(partition.batches())
    assert [batch.header[:13] for batch in found] == [batch[:13] for batch in expected]
    assert sum(len(batch.data) for batch in found) == sum(
        each.manifest.size for each in partition.segments
    )


def test_from_any_offset_to_any_other(store: BlockingStore) -> None:
    log = plain_log(30)
    upload(store, log)
    partition = partition_of(store)
    end = closed(log)
    for start in range(-1, end + 2):
        found = [record.offset for record in partition.records(start)]
        assert found == list(range(max(start, 0), end))
    for stop in range(0, end + 2, 7):
        found = [record.offset for record in partition.records(5, stop)]
        assert found == list(range(5, min(stop, end)))


def test_values_of_records_in_all_codecs(store: BlockingStore) -> None:
    log = new_log(CONFIG)
    for codec in (0, 1, 2, 3, 4) * 8:
        append(log, batch_of(5, value=b"%d" % codec * 60, codec=codec))
        log.write_queued()
    log.high_watermark = log.log_end_offset
    upload(store, log)
    values = [record.value for record in partition_of(store).records()]
    assert values[:25] == [b"%d" % codec * 60 for codec in range(5) for _ in range(5)]


def test_by_timestamp(store: BlockingStore) -> None:
    log = plain_log()
    upload(store, log)
    partition = partition_of(store)
    last = partition.next_offset // 3 - 1
    for number in range(last + 1):
        assert partition.offset_for_timestamp(NOW + number * 10) == number * 3
        assert partition.offset_for_timestamp(NOW + number * 10 - 5) == number * 3
    assert partition.offset_for_timestamp(0) == 0
    assert partition.offset_for_timestamp(NOW + last * 10 + 1) is None


def test_the_log_start_offset(store: BlockingStore) -> None:
    log = plain_log()
    first, *_ = upload(store, log)
    inside = first.end_offset - 1
    store.put(log_start_key(prefix_of("t", TOPIC_ID, 0)), encode_log_start(inside))
    partition = partition_of(store)
    assert partition.start_offset == inside
    assert [r.offset for r in partition.records(0)] == list(range(inside, closed(log)))
    assert partition.offset_for_timestamp(0) == inside
    store.put(log_start_key(prefix_of("t", TOPIC_ID, 0)), encode_log_start(first.end_offset + 1))
    assert partition_of(store).segments[0].manifest.start_offset == first.end_offset + 1


def transactions_log() -> Log:
    log = new_log(CONFIG)
    sequence = 0
    for number in range(30):
        append_in_transaction(log, transactional(7, sequence, count=2))
        append(log, batch_of(1, value=b"plain" * 10))
        sequence += 2
        if number % 3 == 2:
            end_transaction(log, 7, commit=number % 2 == 0)
        log.write_queued()
        log.high_watermark = log.log_end_offset
    return log


def test_aborted_transactions_and_control_batches_are_left_out(store: BlockingStore) -> None:
    from tests.support.transactions import read_committed

    log = transactions_log()
    upload(store, log)
    partition = partition_of(store)
    stable = partition.stable_offset
    assert stable <= partition.next_offset
    shown = [batch.base_offset for batch in read_committed(log) if batch.next_offset <= stable]
    assert offsets(partition.batches(read_committed=True)) == shown
    for start in range(0, stable, 5):
        wanted = [b.base_offset for b in read_committed(log, start) if b.next_offset <= stable]
        assert offsets(partition.batches(start, read_committed=True)) == wanted
    everything = [b.base_offset for b in read_all(log) if not b.is_control]
    assert offsets(partition.batches()) == [o for o in everything if o < partition.next_offset]


def test_a_transaction_that_ends_in_no_remote_segment_is_not_shown(store: BlockingStore) -> None:
    log = new_log(CONFIG)
    append_all(log, batch_of(1))
    append_in_transaction(log, transactional(7, 0))
    for _ in range(40):
        append(log, batch_of(1, value=b"x" * 100))
        log.write_queued()
    log.high_watermark = log.log_end_offset
    upload(store, log, list(log)[:1])
    partition = partition_of(store)
    assert partition.stable_offset == 1
    assert offsets(partition.batches(read_committed=True)) == [0]
    assert len(offsets(partition.batches())) > 3
    end_transaction(log, 7, commit=False)
    log.write_queued()
    log.roll(NOW)
    log.high_watermark = log.log_end_offset
    upload(store, log)
    later = partition_of(store)
    assert later.stable_offset == later.next_offset
    assert 1 not in offsets(later.batches(read_committed=True))
    assert 2 in offsets(later.batches(read_committed=True))


def test_without_snapshots_the_batches_say_which_transactions_are_open(
    store: BlockingStore,
) -> None:
    manifests = upload(store, transactions_log())
    partition = partition_of(store)
    expected = partition.stable_offset, offsets(partition.batches(read_committed=True))
    for manifest in reversed(manifests):  # one after the other, until there is none
        fields = {field: getattr(manifest, field) for field in type(manifest).fields}
        kept = {kind: each for kind, each in manifest.objects.items() if kind != "snapshot"}
        store.put(manifest.key(), encode_manifest(type(manifest)(**{**fields, "objects": kept})))
        partition = partition_of(store)
        found = partition.stable_offset, offsets(partition.batches(read_committed=True))
        assert found == expected


def test_a_missing_segment_is_told_where_it_is_missed(store: BlockingStore) -> None:
    log = plain_log()
    manifests = upload(store, log)
    store.delete(manifests[1].key())
    batches = partition_of(store).batches()
    first = [next(batches) for _ in range(3)]
    assert first[0].header.base_offset == 0
    with pytest.raises(MissingRecords) as missing:
        list(batches)
    assert missing.value.first_offset == manifests[1].start_offset
    assert missing.value.last_offset == manifests[1].end_offset
    after = partition_of(store).batches(manifests[2].start_offset)
    assert next(after).header.base_offset == manifests[2].start_offset


@pytest.mark.parametrize("kind", [LOG, INDEX])
def test_damage_is_noticed(store: BlockingStore, kind: str) -> None:
    log = plain_log()
    manifest = upload(store, log)[0]
    content = bytearray(store.get(manifest.key(kind), 0, 10_000))
    content[-1] ^= 1
    store.put(manifest.key(kind), bytes(content))
    with pytest.raises(DamagedObject) as damaged:
        list(partition_of(store).batches(3))
    assert damaged.value.key == manifest.key(kind)


def test_an_object_that_is_cut_off(store: BlockingStore) -> None:
    log = plain_log()
    manifest = upload(store, log)[0]
    store.put(manifest.key(LOG), store.get(manifest.key(LOG), 0, manifest.size - 10))
    with pytest.raises(DamagedObject, match="10 bytes are missing at the end"):
        list(partition_of(store).batches())


def test_a_log_that_ends_within_a_batch(store: BlockingStore) -> None:
    log = plain_log()
    manifest = upload(store, log)[0]
    fields = {field: getattr(manifest, field) for field in type(manifest).fields}
    summary = manifest.objects[LOG]
    shorter = type(summary)(summary.size - 10, 0)
    changed = type(manifest)(**{**fields, "objects": {**manifest.objects, LOG: shorter}})
    store.put(manifest.key(), encode_manifest(changed))
    with pytest.raises(DamagedObject, match="the batch is incomplete"):
        list(partition_of(store).batches())


def test_a_damaged_transaction_index(store: BlockingStore) -> None:
    log = transactions_log()
    manifest = next(m for m in upload(store, log) if TXN_INDEX in m.objects)
    store.put(manifest.key(TXN_INDEX), b"x" * manifest.objects[TXN_INDEX].size)
    with pytest.raises(DamagedObject, match="CRC is not that in the manifest"):
        list(partition_of(store).batches(read_committed=True))


def test_a_segment_that_is_deleted_meanwhile(store: BlockingStore) -> None:
    log = plain_log()
    manifests = upload(store, log)
    partition = partition_of(store)
    store.delete(manifests[0].key(LOG))
    with pytest.raises(ObjectNotFound):
        next(partition.batches())


def test_a_segment_that_is_replaced_meanwhile(store: BlockingStore) -> None:
    """The reader lists the segments again, and goes on where it was."""
    log = plain_log()
    manifests = upload(store, log)
    partition = partition_of(store)
    expected = offsets(partition_of(store).batches())
    batches = partition.batches()
    read = offsets(islice(batches, 2))
    replace_all(store, manifests)
    assert read + offsets(batches) == expected


def test_lookups_in_segments_that_are_replaced_meanwhile(store: BlockingStore) -> None:
    log = transactions_log()
    manifests = upload(store, log)
    by_time, committed, late = (partition_of(store) for _ in range(3))
    replace_all(store, manifests)
    assert by_time.offset_for_timestamp(NOW) == partition_of(store).offset_for_timestamp(NOW)
    found = offsets(committed.batches(read_committed=True))
    assert found == offsets(partition_of(store).batches(read_committed=True))
    store.delete(partition_of(store).segments[0].manifest.key(TIME_INDEX))
    with pytest.raises(ObjectNotFound):
        late.offset_for_timestamp(0)


def replace_all(store: BlockingStore, manifests: list[Manifest]) -> None:
    """Put copies with other ids in the place of segments, as a rewrite does."""
    for old in manifests:
        new = Manifest(
            **{
                **{name: getattr(old, name) for name in Manifest.fields},
                "segment_id": old.segment_id[::-1],
                "replaces": (old.segment_id,),
            }
        )
        for kind in old.objects:
            store.put(new.key(kind), store.get(old.key(kind), 0, 1 << 20))
        store.put(new.key(), encode_manifest(new))
        for kind in (MANIFEST, *old.objects):
            store.delete(old.key(kind))


def test_a_manifest_that_cannot_be_read_is_an_error(store: BlockingStore) -> None:
    log = plain_log()
    manifests = upload(store, log)
    store.put(manifests[0].key(), b"{}")
    with pytest.raises(DamagedObject, match="version is missing"):
        partition_of(store)
    store.put(manifests[0].key(), encode_manifest(manifests[1]))
    with pytest.raises(DamagedObject, match="it is the manifest of another segment"):
        partition_of(store)


def test_topics_are_found_by_name(store: BlockingStore) -> None:
    log = plain_log(20)
    upload(store, log)
    assert find_topic_id(store, "t") == TOPIC_ID
    with pytest.raises(NoSuchTopic, match="nothing of a topic u"):
        find_topic_id(store, "u")
    store.put("t-" + "A" * 22 + "/0/x", b"")
    with pytest.raises(NoSuchTopic, match="several topics t; choose one by its id: AAAAAAAA"):
        find_topic_id(store, "t")
    assert RemoteTopic(store, "t", TOPIC_ID).partitions == (0,)
    with pytest.raises(NoSuchTopic, match="nothing of t with id"):
        RemoteTopic(store, "t", b"\1" * 16)


def test_objects_of_others_are_not_in_the_way(store: BlockingStore) -> None:
    log = plain_log(20)
    upload(store, log)
    prefix = prefix_of("t", TOPIC_ID, 0)
    for name in ("README", "00000000000000000000-x.manifest", "sub/dir/x.manifest"):
        store.put(prefix + name, b"?")
    store.put(f"t-{'B' * 22}x/0/y", b"?")
    listing = list_partition(store, "t", TOPIC_ID, 0)
    assert listing.damaged == ()
    assert len(partition_of(store).segments) == len(list(log)) - 1
