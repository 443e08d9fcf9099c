"""Metadata records are the bytes Kafka's own classes write (taken from Kafka 4.3's)."""

from __future__ import annotations

import pytest

from ottla.metadata.records import (
    RECORD_TYPES,
    AbortTransactionRecord,
    BeginTransactionRecord,
    BrokerEndpoint,
    BrokerFeature,
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnregisterBrokerRecord,
    ZkMigrationStateRecord,
)
from ottla.metadata.security_records import SECURITY_RECORDS
from ottla.metadata.serde import MetadataError, decode_record, encode_record
from ottla.wire.message import Message
from tests.unit.metadata.test_security_records import SECURITY_GOLDEN

TOPIC_ID = bytes(range(1, 17))
DIRECTORY = bytes(range(17, 33))
T = TOPIC_ID.hex()
D = DIRECTORY.hex()

GOLDEN: dict[str, tuple[Message, str]] = {
    "topic": (
        TopicRecord(name="orders", topic_id=TOPIC_ID),
        # frame 1, type 2, version 0; compact string of 6; the id; no tagged fields
        "01 02 00" + "07" + b"orders".hex() + T + "00",
    ),
    "partition": (
        PartitionRecord(
            partition_id=1,
            topic_id=TOPIC_ID,
            replicas=[1, 2],
            isr=[2],
            leader=2,
            leader_epoch=3,
            partition_epoch=4,
            directories=[DIRECTORY, bytes(16)],
        ),
        "01 03 02 00000001" + T + "03 00000001 00000002" + "02 00000002" + "01" + "01"
        "00000002" + "00000003" + "00000004" + "03" + D + "00" * 16 + "00",
    ),
    "partition with eligible leaders": (
        PartitionRecord(
            partition_id=0,
            topic_id=TOPIC_ID,
            replicas=[1],
            leader=-1,
            leader_recovery_state=1,
            leader_epoch=0,
            partition_epoch=0,
            directories=[DIRECTORY],
            eligible_leader_replicas=[1],
            last_known_elr=[],
        ),
        "01 03 02 00000000"
        + T
        + "02 00000001"
        + "01 01 01"
        + "ffffffff"
        + "00000000" * 2
        + "02"
        + D
        # three tagged fields: recovery state (1 byte), ELR (5 bytes), last known ELR (1 byte)
        + "03"
        + "00 01 01"
        + "01 05 02 00000001"
        + "02 01 01",
    ),
    "change": (
        PartitionChangeRecord(
            partition_id=1,
            topic_id=TOPIC_ID,
            isr=[1, 2],
            leader=1,
            eligible_leader_replicas=[],
            directories=[DIRECTORY, DIRECTORY],
        ),
        "01 05 02 00000001" + T + "04" + "00 09 03 00000001 00000002" + "01 04 00000001"
        "06 01 01" + "08 21 03" + D + D,
    ),
    "change of leader": (
        PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, leader=1),
        "01 05 02 00000000" + T + "01" + "01 04 00000001",
    ),
    "config": (
        ConfigRecord(resource_type=2, resource_name="orders", name="retention.ms", value="1000"),
        "01 04 00 02 07" + b"orders".hex() + "0d" + b"retention.ms".hex() + "05 31303030 00",
    ),
    "config taken back": (
        ConfigRecord(resource_type=4, resource_name="", name="log.retention.ms", value=None),
        "01 04 00 04 01 11" + b"log.retention.ms".hex() + "00 00",
    ),
    "remove": (RemoveTopicRecord(topic_id=TOPIC_ID), "01 09 00" + T + "00"),
    "register": (
        RegisterBrokerRecord(
            broker_id=1,
            incarnation_id=TOPIC_ID,
            broker_epoch=42,
            end_points=[BrokerEndpoint(name="PLAINTEXT", host="localhost", port=9092)],
            features=[
                BrokerFeature(
                    name="metadata.version", min_supported_version=7, max_supported_version=25
                )
            ],
            rack="r1",
            fenced=False,
            log_dirs=[DIRECTORY],
        ),
        "01 00 03 00000001 00" + T + "000000000000002a"
        "02 0a" + b"PLAINTEXT".hex() + "0a" + b"localhost".hex() + "2384 0000 00"
        "02 11" + b"metadata.version".hex() + "0007 0019 00"
        "03 7231 00 00" + "01 00 11 02" + D,
    ),
    "register with nothing": (
        RegisterBrokerRecord(broker_id=1, incarnation_id=TOPIC_ID, broker_epoch=42),
        "01 00 03 00000001 00" + T + "000000000000002a 01 01 00 01 00 00",
    ),
    "broker change": (
        BrokerRegistrationChangeRecord(
            broker_id=1, broker_epoch=42, fenced=-1, log_dirs=[DIRECTORY]
        ),
        "01 11 02 00000001 000000000000002a 02 00 01 ff 02 11 02" + D,
    ),
    "unregister": (
        UnregisterBrokerRecord(broker_id=1, broker_epoch=42),
        "01 01 00 00000001 000000000000002a 00",
    ),
    "feature": (
        FeatureLevelRecord(name="metadata.version", feature_level=25),
        "01 0c 00 11" + b"metadata.version".hex() + "0019 00",
    ),
    "producer ids": (
        ProducerIdsRecord(broker_id=1, broker_epoch=42, next_producer_id=1000),
        "01 0f 00 00000001 000000000000002a 00000000000003e8 00",
    ),
    "no op": (NoOpRecord(), "01 14 00 00"),
    "begin": (BeginTransactionRecord(name="b"), "01 17 00 01 00 02 02 62"),
    "begin without a name": (BeginTransactionRecord(), "01 17 00 00"),
    "end": (EndTransactionRecord(), "01 18 00 00"),
    "abort": (AbortTransactionRecord(reason="r"), "01 19 00 01 00 02 02 72"),
    "zk migration": (ZkMigrationStateRecord(zk_migration_state=3), "01 15 00 03 00"),
    "controller": (
        RegisterControllerRecord(
            controller_id=1,
            incarnation_id=TOPIC_ID,
            end_points=[BrokerEndpoint(name="C", host="h", port=9093)],
            features=[BrokerFeature(name="f", min_supported_version=1, max_supported_version=2)],
        ),
        "01 1b 00 00000001" + T + "00 02 0243 0268 2385 0000 00 02 0266 0001 0002 00 00",
    ),
    "clear ELR": (
        ClearElrRecord(topic_name="__transaction_state"),
        "01 1c 00 14" + b"__transaction_state".hex() + "00",  # as Kafka 4.3 wrote it
    ),
    **SECURITY_GOLDEN,
}


@pytest.mark.parametrize("name", GOLDEN)
def test_records_have_kafkas_bytes(name: str) -> None:
    record, hexadecimal = GOLDEN[name]
    assert encode_record(record) == bytes.fromhex(hexadecimal)


@pytest.mark.parametrize("name", GOLDEN)
def test_records_come_back(name: str) -> None:
    record, hexadecimal = GOLDEN[name]
    assert decode_record(bytes.fromhex(hexadecimal)) == record


def test_every_record_type_is_covered() -> None:
    assert {type(record) for record, _ in GOLDEN.values()} == {
        *RECORD_TYPES.values(),
        *SECURITY_RECORDS.values(),
    }


def test_a_newer_version_with_more_tagged_fields_is_read() -> None:
    value = bytes.fromhex("01 11 03 00000001 000000000000002a 01 03 11 02" + D)
    assert decode_record(value) == BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=42)


def test_an_old_version_is_read() -> None:
    value = bytes.fromhex("01 03 00 00000001" + T + "02 00000001 02 00000001 01 01 00000001")
    value += bytes(9)
    assert decode_record(value) == PartitionRecord(
        partition_id=1,
        topic_id=TOPIC_ID,
        replicas=[1],
        isr=[1],
        leader=1,
        leader_epoch=0,
        partition_epoch=0,
    )


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("02 14 00 00", "frame version 2, not 1"),
        ("01 63 00 00", "type 99, version 0"),
        ("01 02 05 00", "type 2, version 5"),
        ("01 02 00 07 6f72", "damaged metadata record"),
        ("01 14 00 00 00", "1 bytes follow a NoOpRecord"),
        ("", "damaged metadata record"),
    ],
)
def test_what_is_no_record_is_refused(value: str, message: str) -> None:
    with pytest.raises(MetadataError, match=message):
        decode_record(bytes.fromhex(value))
