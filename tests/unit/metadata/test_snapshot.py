"""Snapshots: an image to a file and back, and files that are not whole."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.config.listeners import SECURITY_PROTOCOLS, Endpoint
from ottla.memory_files import MemoryFiles
from ottla.metadata import snapshot
from ottla.metadata.control_records import control_batch, decode_control
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import (
    BrokerImage,
    ControllerImage,
    FeatureRange,
    MetadataImage,
    PartitionImage,
    TopicImage,
)
from ottla.metadata.records import (
    FeatureLevelRecord,
)
from ottla.metadata.serde import MetadataError
from ottla.metadata.snapshot import (
    SnapshotId,
    decode_snapshot,
    encode_snapshot,
    image_records,
    snapshot_id,
)
from ottla.ports import File
from ottla.records.batch import scan
from ottla.records.record import records_of
from ottla.wire.messages.k_raft_version_record import KRaftVersionRecord
from ottla.wire.messages.leader_change_message import LeaderChangeMessage
from ottla.wire.messages.leader_change_message import Voter as LeaderChangeVoter
from ottla.wire.messages.snapshot_footer_record import SnapshotFooterRecord
from ottla.wire.messages.snapshot_header_record import SnapshotHeaderRecord
from ottla.wire.messages.voters_record import Endpoint as VoterEndpoint
from ottla.wire.messages.voters_record import KRaftVersionFeature, VotersRecord
from ottla.wire.messages.voters_record import Voter as VotersRecordVoter

KAFKA_LOG = Path(__file__).parents[1] / "records/kafka-4.3/__cluster_metadata-0"
KAFKA_SNAPSHOT = Path(__file__).parent / "kafka-4.3/00000000000000000029-0000000001.checkpoint"
NOW_MS = 1_700_000_000_000
CONTROL = (SnapshotHeaderRecord, SnapshotFooterRecord, KRaftVersionRecord, VotersRecord)


def write(content: bytes) -> File:
    file = MemoryFiles().open("/x.checkpoint", create=True)
    file.pwritev([content], 0)
    return file


def content_of(image: MetadataImage) -> bytes:
    return b"".join(encode_snapshot(image, NOW_MS))


def load(content: bytes, cluster_id: str = "") -> MetadataImage:
    delta = MetadataDelta(MetadataImage(cluster_id))
    for message in decode_snapshot(write(content)):
        if not isinstance(message, CONTROL):
            delta.replay(message)
    return delta.apply()


def image_of(*topics: TopicImage, **parts: object) -> MetadataImage:
    names = {topic.name: topic for topic in topics}
    keyed = {name.replace(".", "_"): frozenset({name}) for name in names if {".", "_"} & set(name)}
    return MetadataImage(
        topics=names,
        topics_by_id={topic.topic_id: topic for topic in topics},
        colliding_names=keyed,
        **parts,  # type: ignore[arg-type]
    )


PARTITION = PartitionImage(
    0, (1, 2, 3), (1, 2), 1, 5, 6, (b"d" * 16,) * 3, (3,), (4,), (2,), (3,), 1
)
ENDPOINTS = tuple(Endpoint(f"L{n}", "h", n, name) for n, name in enumerate(SECURITY_PROTOCOLS))
FEATURES = (FeatureRange("metadata.version", 7, 25), FeatureRange("group.version", 0, 1))
FULL = image_of(
    TopicImage("a.b", b"a" * 16, (PARTITION, PARTITION._replace(partition_id=1, leader=-1))),
    TopicImage("c", b"c" * 16, ()),
    configs={(2, "a.b"): {"x": "1", "y": ""}, (4, ""): {"z": "2"}, (32, "g"): {"w": "3"}},
    brokers={
        1: BrokerImage(1, 9, b"i" * 16, ENDPOINTS, "r", False, True, (b"d" * 16,), FEATURES),
        2: BrokerImage(2, 0, b"j" * 16, ()),
    },
    controllers={3: ControllerImage(3, b"k" * 16, ENDPOINTS[:1], True, FEATURES)},
    features={"metadata.version": 25, "a.feature": 1},
    next_producer_id=5000,
)


def test_everything_in_an_image_comes_back() -> None:
    assert load(content_of(FULL)) == FULL
    assert load(content_of(MetadataImage())) == MetadataImage()


IDS = st.lists(st.integers(0, 2**31 - 1), max_size=4).map(tuple)
UUIDS = st.binary(min_size=16, max_size=16)
NAMES = st.text("ab._", min_size=1, max_size=4)
PARTITIONS = st.builds(
    PartitionImage,
    partition_id=st.just(0),
    replicas=IDS,
    isr=IDS,
    leader=st.integers(-1, 5),
    leader_epoch=st.integers(0, 2**31 - 1),
    partition_epoch=st.integers(0, 2**31 - 1),
    directories=st.lists(UUIDS, max_size=3).map(tuple),
    removing_replicas=IDS,
    adding_replicas=IDS,
    eligible_leader_replicas=IDS,
    last_known_elr=IDS,
    leader_recovery_state=st.integers(0, 1),
)


@st.composite
def images(draw: st.DrawFn) -> MetadataImage:
    topics = {}
    for name in draw(st.sets(NAMES, max_size=4)):
        listed = enumerate(draw(st.lists(PARTITIONS, max_size=4)))
        partitions = tuple(each._replace(partition_id=index) for index, each in listed)
        topics[name] = TopicImage(name, draw(UUIDS), partitions)
    if len({topic.topic_id for topic in topics.values()}) < len(topics):
        topics = {}
    settings = st.dictionaries(NAMES, st.text(max_size=5), min_size=1, max_size=3)
    keys = st.tuples(st.sampled_from((2, 4, 32)), NAMES)
    image = MetadataImage(
        configs=draw(st.dictionaries(keys, settings, max_size=4)),
        features=draw(st.dictionaries(NAMES, st.integers(1, 99), max_size=3)),
        next_producer_id=draw(st.integers(0, 2**62)),
        topics=topics,
        topics_by_id={topic.topic_id: topic for topic in topics.values()},
    )
    colliding: dict[str, frozenset[str]] = {}
    for name in topics:
        if {".", "_"} & set(name):
            key = name.replace(".", "_")
            colliding[key] = colliding.get(key, frozenset()) | {name}
    return image._replace(colliding_names=colliding)


@settings(max_examples=150, deadline=None)
@given(images())
def test_any_image_comes_back(image: MetadataImage) -> None:
    assert load(content_of(image)) == image


def test_batches_are_small_and_in_order() -> None:
    partitions = tuple(PARTITION._replace(partition_id=index) for index in range(1000))
    image = image_of(TopicImage("t", b"t" * 16, partitions))._replace(epoch=7)
    content = content_of(image)
    batches = list(scan(content, 0, len(content)))
    assert [batch.record_count for batch in batches] == [1, 250, 250, 250, 250, 1, 1]
    assert [batch.is_control for batch in batches] == [True, *[False] * 5, True]
    assert all(batch.partition_leader_epoch == 7 for batch in batches)
    for before, after in pairwise(batches):
        assert after.base_offset == before.next_offset
    assert load(content) == image._replace(epoch=0)


def test_a_snapshot_larger_than_what_is_read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot, "_READ_BYTES", 100)
    assert load(content_of(FULL)) == FULL


@pytest.mark.parametrize("share", [0.0, 0.3, 0.6, 0.95, 1.0])
def test_a_part_of_a_snapshot_is_refused(share: float) -> None:
    content = content_of(FULL)
    with pytest.raises(MetadataError):
        load(content[: int(len(content) * share) - 1 if share else 0])


def test_every_damaged_byte_is_noticed() -> None:
    content = content_of(FULL)
    for position in range(17, len(content), 7):
        damaged = bytearray(content)
        damaged[position] ^= 0x10
        try:
            image = load(bytes(damaged))
        except MetadataError:
            continue
        # Offsets and epochs lie before what the CRC covers, and are not used.
        assert image == FULL


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda batches: batches[:-1], "has no footer"),
        (lambda batches: batches[1:], "has no header"),
        (lambda batches: [*batches, batches[1]], "records after the footer"),
    ],
)
def test_header_and_footer_are_asked_for(
    change: Callable[[list[bytes]], list[bytes]], message: str
) -> None:
    batches = change([bytes(batch) for batch in encode_snapshot(FULL, NOW_MS)])
    with pytest.raises(MetadataError, match=message):
        load(b"".join(batches))


def test_names() -> None:
    found = SnapshotId(1234, 5)
    assert found.file_name == "00000000000000001234-0000000005.checkpoint"
    assert found.part_name == "00000000000000001234-0000000005.checkpoint.part"
    assert snapshot_id(found.file_name) == found
    for name in (found.part_name, "1234.checkpoint", "a-1.checkpoint", "quorum-state"):
        assert snapshot_id(name) is None


def test_a_snapshot_of_kafkas_comes_back() -> None:
    """One that Kafka 4.3 wrote: its records make an image, and the image the same records."""
    content = KAFKA_SNAPSHOT.read_bytes()
    header, *records, footer = decode_snapshot(write(content))
    assert header == SnapshotHeaderRecord(last_contained_log_timestamp=1794846606497)
    assert footer == SnapshotFooterRecord()
    image = MetadataDelta(MetadataImage()).replay_all(records).apply()
    assert list(image.topics) == ["t"]
    assert len(image.topics["t"].partitions) == 2
    assert image.topic_config("t") == {"retention.ms": "99999999"}
    assert image.next_producer_id == 1000
    features = sum(isinstance(record, FeatureLevelRecord) for record in records)
    assert list(image_records(image))[features:] == records[features:]
    assert load(content_of(image)) == image


def test_records_come_in_kafkas_order() -> None:
    records = list(image_records(FULL))
    assert records[0] == FeatureLevelRecord(name="metadata.version", feature_level=25)
    kinds = list(dict.fromkeys(type(record).__name__ for record in records))
    assert kinds == [
        "FeatureLevelRecord",
        "RegisterBrokerRecord",
        "RegisterControllerRecord",
        "TopicRecord",
        "PartitionRecord",
        "ConfigRecord",
        "ProducerIdsRecord",
    ]


VOTERS = VotersRecord(
    voters=[
        VotersRecordVoter(
            voter_id=1,
            voter_directory_id=b"d" * 16,
            endpoints=[VoterEndpoint(name="CONTROLLER", host="h", port=9093)],
            k_raft_version_feature=KRaftVersionFeature(max_supported_version=1),
        )
    ]
)


def test_control_records_come_back() -> None:
    messages = [
        LeaderChangeMessage(leader_id=1, voters=[LeaderChangeVoter(voter_id=1)]),
        SnapshotHeaderRecord(last_contained_log_timestamp=5),
        KRaftVersionRecord(k_raft_version=1),
        VOTERS,
        SnapshotFooterRecord(),
    ]
    batch = bytes(control_batch(messages, NOW_MS))
    assert [decode_control(record) for record in records_of(batch)] == messages


def test_the_leader_change_is_what_kafka_writes() -> None:
    log = (KAFKA_LOG / "00000000000000000000.log").read_bytes()
    first = next(scan(log, 0, len(log)))
    (record,) = records_of(log[: first.end])
    voter = LeaderChangeVoter(voter_id=1)
    message = LeaderChangeMessage(leader_id=1, voters=[voter], granting_voters=[voter])
    assert decode_control(record) == message
    (own,) = records_of(bytes(control_batch([message], NOW_MS)))
    assert (own.key, own.value) == (record.key, record.value)


def test_voters_are_part_of_the_header() -> None:
    batches = encode_snapshot(FULL, NOW_MS, [KRaftVersionRecord(k_raft_version=1), VOTERS])
    messages = list(decode_snapshot(write(b"".join(batches))))
    assert messages[1:3] == [KRaftVersionRecord(k_raft_version=1), VOTERS]
