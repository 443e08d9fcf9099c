"""`check` and `verify`: a whole tier has no findings, and each kind of damage has its own."""

from __future__ import annotations

from collections.abc import Callable
from struct import pack
from typing import Any

import pytest

from ottla.config.topic import LogConfig
from ottla.log.log import Log
from ottla.log.state.leader_epochs import EpochEntry
from ottla.records.checksum import crc32c
from ottla.server.object_stores.blocking_store import BlockingStore, open_blocking_store
from ottla.tier_reader.check import check_partition
from ottla.tier_reader.findings import Finding
from ottla.tier_reader.listing import list_partition
from ottla.tier_reader.verify import verify_segment
from ottla.tiered.layout import partition_prefix
from ottla.tiered.manifest import Manifest, ObjectSummary, encode_manifest
from tests.support.log import NOW, TOPIC_ID, append, batch_of, new_log
from tests.support.tier import upload
from tests.support.transactions import append_in_transaction, end_transaction, transactional

CONFIG = LogConfig(segment_bytes=1500, index_interval_bytes=200, retention_ms=-1)
PREFIX = partition_prefix("t", TOPIC_ID, 0)


def history() -> Log:
    """Return a log with transactions, leader epochs and timestamps that also fall."""
    log = new_log(CONFIG)
    for number in range(60):
        timestamp = NOW + number * 10 - (number % 5) * 25
        append(log, batch_of(2, timestamp=timestamp), leader_epoch=number // 20)
        append_in_transaction(log, transactional(7, number), leader_epoch=number // 20)
        end_transaction(log, 7, commit=number % 3 > 0, leader_epoch=number // 20)
        log.write_queued()
    log.high_watermark = log.log_end_offset
    return log


@pytest.fixture
def store() -> BlockingStore:
    return open_blocking_store("memory:")


@pytest.fixture
def manifests(store: BlockingStore) -> list[Manifest]:
    return upload(store, history())


def checked(store: BlockingStore) -> list[Finding]:
    return check_partition(store, list_partition(store, "t", TOPIC_ID, 0))[1]


def verified(store: BlockingStore, manifest: Manifest) -> list[Finding]:
    read: list[int] = []
    result = verify_segment(store, manifest, read.append)
    assert sum(read) <= manifest.total_size
    return result.findings


def changed(store: BlockingStore, manifest: Manifest, **changes: Any) -> Manifest:
    fields = {field: getattr(manifest, field) for field in type(manifest).fields}
    new = Manifest(**{**fields, **changes})
    store.put(new.key(), encode_manifest(new))
    return new


def rewritten(store: BlockingStore, manifest: Manifest, kind: str, content: bytes) -> Manifest:
    """Replace an object, and make the manifest agree."""
    store.put(manifest.key(kind), content)
    summary = ObjectSummary(len(content), crc32c(content))
    return changed(store, manifest, objects={**manifest.objects, kind: summary})


def content_of(store: BlockingStore, manifest: Manifest, kind: str) -> bytearray:
    return bytearray(store.get(manifest.key(kind), 0, 10_000))


def test_a_whole_tier_has_no_findings(store: BlockingStore, manifests: list[Manifest]) -> None:
    assert len(manifests) > 5
    assert any("txnindex" in manifest.objects for manifest in manifests)
    assert checked(store) == []
    records = 0
    for manifest in manifests:
        read: list[int] = []
        result = verify_segment(store, manifest, read.append)
        assert result.findings == []
        assert sum(read) == manifest.total_size
        records += result.records
    assert records == manifests[-1].end_offset + 1


def test_a_missing_object(store: BlockingStore, manifests: list[Manifest]) -> None:
    for kind in manifests[0].objects:
        store.delete(manifests[0].key(kind))
        texts = [str(found) for found in checked(store)]
        assert texts == [f"{manifests[0].key(kind).rpartition('/')[2]}: the object is missing"]
        assert [f.text for f in verified(store, manifests[0])] == ["the object is missing"]
        upload(store, history())


def test_an_object_that_came_after_its_place_was_listed(
    store: BlockingStore, manifests: list[Manifest]
) -> None:
    key = manifests[0].key("index")
    listing = list_partition(store, "t", TOPIC_ID, 0)
    del listing.objects[key.removeprefix(PREFIX)]
    assert check_partition(store, listing)[1] == []


def test_an_object_of_another_size(store: BlockingStore, manifests: list[Manifest]) -> None:
    store.put(manifests[0].key("log"), b"short")
    (found,) = checked(store)
    assert found.text == f"the object has 5 bytes instead of {manifests[0].size}"
    assert "bytes are missing at the end" in verified(store, manifests[0])[0].text


def test_a_missing_segment_and_its_leftovers(
    store: BlockingStore, manifests: list[Manifest]
) -> None:
    gone = manifests[2]
    store.delete(gone.key())
    found = checked(store)
    problems = [each.text for each in found if each.is_problem]
    assert problems == [f"offsets {gone.start_offset} to {gone.end_offset} are in no segment"]
    leftovers = [each.subject for each in found if "it has no manifest" in each.text]
    assert sorted(leftovers) == sorted(gone.key(k).rpartition("/")[2] for k in gone.objects)


def test_a_damaged_manifest(store: BlockingStore, manifests: list[Manifest]) -> None:
    store.put(manifests[0].key(), b"[]")
    problems = [each for each in checked(store) if each.is_problem]
    assert [each.text for each in problems] == ["not a JSON object"]


def test_other_objects_are_remarks(store: BlockingStore, manifests: list[Manifest]) -> None:
    store.put(PREFIX + "README", b"x")
    assert checked(store) == [Finding(False, "README", "this is not an object of the tier")]
    store.put(PREFIX + "log-start-offset", b"x")
    problems = [each for each in checked(store) if each.is_problem]
    assert [each.text for each in problems] == ["'x' is not an offset"]


def test_a_replaced_segment_is_a_remark(store: BlockingStore, manifests: list[Manifest]) -> None:
    changed(
        store, manifests[0], segment_id=b"new segment 1234", replaces=(manifests[0].segment_id,)
    )
    found = [each for each in checked(store) if "nothing of this segment is read" in each.text]
    assert [each.subject for each in found] == [manifests[0].key().rpartition("/")[2]]


@pytest.mark.parametrize("kind", ["log", "index", "timeindex", "snapshot", "txnindex"])
def test_each_flipped_bit_is_found(
    store: BlockingStore, manifests: list[Manifest], kind: str
) -> None:
    manifest = next(each for each in manifests if "txnindex" in each.objects)
    original = content_of(store, manifest, kind)
    for at in range(0, len(original), max(1, len(original) // 40)):
        damaged = bytearray(original)
        damaged[at] ^= 0x10
        store.put(manifest.key(kind), bytes(damaged))
        found = verified(store, manifest)
        assert found, f"byte {at} of {kind}"
        assert all(each.is_problem for each in found)
        assert {each.subject for each in found} == {manifest.key(kind).rpartition("/")[2]}


Change = Callable[[BlockingStore, Manifest], Manifest]


def other_entry(kind: str, at: int, entry: bytes) -> Change:
    def change(store: BlockingStore, manifest: Manifest) -> Manifest:
        content = content_of(store, manifest, kind)
        content[at : at + len(entry)] = entry
        return rewritten(store, manifest, kind, bytes(content))

    return change


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (other_entry("index", 4, pack(">i", 7)), "no batch begins at position 7"),
        (other_entry("index", 0, pack(">i", 0)), "not "),
        (other_entry("index", 4, pack(">i", 10**6)), "comes after"),
        (other_entry("timeindex", 0, pack(">q", 5)), "does not have timestamp 5"),
        (other_entry("timeindex", 8, pack(">i", 10**6)), "offset 1000000 is not in the segment"),
        (other_entry("txnindex", 18, pack(">q", 10**6)), "offset 15 after 1000000"),
        (other_entry("txnindex", 2, pack(">q", 8)), "no transaction is aborted at offset 3"),
        (other_entry("txnindex", 0, pack(">h", 3)), "version 3 of an entry is unknown"),
        (lambda s, m: rewritten(s, m, "timeindex", b""), "it ends with timestamp -1"),
        (lambda s, m: rewritten(s, m, "snapshot", b"x"), "too few for a snapshot"),
        (lambda s, m: rewritten(s, m, "leader-epoch-checkpoint", b"0\n0\n"), "leader epoch 0"),
        (lambda s, m: rewritten(s, m, "log", b""), "it has no batches"),
        (lambda s, m: changed(s, m, max_timestamp_ms=5), "max_timestamp_ms is 5"),
        (
            lambda s, m: changed(s, m, leader_epochs=(EpochEntry(9, 0),)),
            "leader epoch 9 of the manifest is not in it",
        ),
    ],
)
def test_objects_that_contradict_each_other(
    store: BlockingStore, manifests: list[Manifest], change: Change, text: str
) -> None:
    manifest = change(store, manifests[0])
    assert any(text in found.text for found in verified(store, manifest)), verified(store, manifest)
