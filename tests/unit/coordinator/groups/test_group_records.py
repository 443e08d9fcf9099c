"""Every record byte for byte as Kafka 4.3's own coordinator writes it."""

import pytest

from ottla.coordinator.groups import records as r
from ottla.coordinator.groups.consumer import records as c
from ottla.coordinator.groups.record_serde import KINDS, decode, encode
from ottla.coordinator.runtime.record import RecordError
from ottla.wire.codec import encoder

TOPIC_ID = bytes(range(1, 17))
MEMBERS = [
    r.MemberMetadata(
        member_id="m-1",
        group_instance_id="i-1",
        client_id="c",
        client_host="/127.0.0.1",
        rebalance_timeout=300000,
        session_timeout=45000,
        subscription=b"\0\1\2",
        assignment=b"\3\4",
    ),
    r.MemberMetadata(
        member_id="m-2",
        client_id="d",
        client_host="/::1",
        rebalance_timeout=60000,
        session_timeout=10000,
    ),
]
GROUP = r.GroupMetadataValue(
    protocol_type="consumer",
    generation=3,
    protocol="range",
    leader="m-1",
    current_state_timestamp=1700000000456,
    members=MEMBERS,
)
COMMIT = r.OffsetCommitValue(
    offset=11, leader_epoch=4, metadata="x", commit_timestamp=1000, expire_timestamp=2000
)

# What GroupCoordinatorRecordHelpers and GroupCoordinatorRecordSerde of Kafka 4.3.0 gave.
WRITTEN = {
    "commit": (
        r.OffsetCommitKey(group="group-1", topic="events", partition=3),
        r.OffsetCommitValue(
            offset=42,
            leader_epoch=7,
            metadata="meta",
            commit_timestamp=1700000000123,
            topic_id=TOPIC_ID,
        ),
        "0001000767726f75702d3100066576656e747300000003",
        "0004000000000000002a00000007056d6574610000018bcfe5687b0100100102030405060708090a0b0c0d0e0f10",
    ),
    "commit without topic id": (
        r.OffsetCommitKey(group="grün", topic="t", partition=0),
        r.OffsetCommitValue(commit_timestamp=1),
        "000100056772c3bc6e00017400000000",
        "00040000000000000000ffffffff01000000000000000100",
    ),
    "commit that expires": (
        r.OffsetCommitKey(group="g", topic="t", partition=1),
        r.OffsetCommitValue(offset=5, metadata="m", commit_timestamp=10, expire_timestamp=20),
        "000100016700017400000001",
        "0001000000000000000500016d000000000000000a0000000000000014",
    ),
    "commit tombstone": (
        r.OffsetCommitKey(group="group-1", topic="events", partition=3),
        None,
        "0001000767726f75702d3100066576656e747300000003",
        None,
    ),
    "group": (
        r.GroupMetadataKey(group="group-1"),
        GROUP,
        "0002000767726f75702d31",
        "00030008636f6e73756d657200000003000572616e676500036d2d310000018bcfe569c8"
        "0000000200036d2d310003692d31000163000a2f3132372e302e302e31000493e00000afc8"
        "0000000300010200000002030400036d2d32ffff00016400042f3a3a310000ea60000027100000000000000000",
    ),
    "new group": (
        r.GroupMetadataKey(group="group-1"),
        r.GroupMetadataValue(current_state_timestamp=77),
        "0002000767726f75702d31",
        "0003000000000000ffffffff000000000000004d00000000",
    ),
    "group epoch": (
        c.ConsumerGroupMetadataKey(group_id="g"),
        c.ConsumerGroupMetadataValue(epoch=5, metadata_hash=0x1122334455667788),
        "0003000167",
        "0000000000050100081122334455667788",
    ),
    "group epoch without hash": (
        c.ConsumerGroupMetadataKey(group_id="g"),
        c.ConsumerGroupMetadataValue(epoch=5),
        "0003000167",
        "00000000000500",
    ),
    "partition metadata": (
        c.ConsumerGroupPartitionMetadataKey(group_id="g"),
        c.ConsumerGroupPartitionMetadataValue(
            topics=[
                c.TopicMetadata(
                    topic_id=TOPIC_ID,
                    topic_name="t",
                    num_partitions=2,
                    partition_metadata=[c.PartitionMetadata(partition=1, racks=["r"])],
                )
            ]
        ),
        "0004000167",
        "0000020102030405060708090a0b0c0d0e0f100274000000020200000001020272000000",
    ),
    "member": (
        c.ConsumerGroupMemberMetadataKey(group_id="g", member_id="m"),
        c.ConsumerGroupMemberMetadataValue(
            rack_id="r",
            client_id="c",
            client_host="/h",
            subscribed_topic_names=["a", "b"],
            subscribed_topic_regex="x.*",
            rebalance_timeout_ms=45000,
            server_assignor="uniform",
        ),
        "000500016700016d",
        "00000002720263032f68030261026204782e2a0000afc808756e69666f726d00",
    ),
    "member of the classic protocol": (
        c.ConsumerGroupMemberMetadataKey(group_id="g", member_id="m"),
        c.ConsumerGroupMemberMetadataValue(
            instance_id="i",
            client_id="c",
            client_host="/h",
            rebalance_timeout_ms=1,
            classic_member_metadata=c.ClassicMemberMetadata(
                session_timeout_ms=6000,
                supported_protocols=[c.ClassicProtocol(name="range", metadata=b"\t")],
            ),
        ),
        "000500016700016d",
        "00000269000263032f68010000000001000100100100001770020672616e676502090000",
    ),
    "target epoch": (
        c.ConsumerGroupTargetAssignmentMetadataKey(group_id="g"),
        c.ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=6, assignment_timestamp=258),
        "0006000167",
        "0000000000060100080000000000000102",
    ),
    "target of a member": (
        c.ConsumerGroupTargetAssignmentMemberKey(group_id="g", member_id="m"),
        c.ConsumerGroupTargetAssignmentMemberValue(
            topic_partitions=[c.TargetTopicPartitions(topic_id=TOPIC_ID, partitions=[0, 2])]
        ),
        "000700016700016d",
        "0000020102030405060708090a0b0c0d0e0f100300000000000000020000",
    ),
    "current assignment": (
        c.ConsumerGroupCurrentMemberAssignmentKey(group_id="g", member_id="m"),
        c.ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=7,
            previous_member_epoch=6,
            state=1,
            assigned_partitions=[
                c.CurrentTopicPartitions(topic_id=TOPIC_ID, partitions=[1], assignment_epochs=[9])
            ],
        ),
        "000800016700016d",
        "0000000000070000000601020102030405060708090a0b0c0d0e0f10020000000101000502000000090100",
    ),
    "regular expression": (
        c.ConsumerGroupRegularExpressionKey(group_id="g", regular_expression="a.*"),
        c.ConsumerGroupRegularExpressionValue(topics=["a1"], version=12, timestamp=34),
        "00100001670003612e2a",
        "000002036131000000000000000c000000000000002200",
    ),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_written_as_kafka_writes_it(name: str) -> None:
    key, value, key_hex, value_hex = WRITTEN[name]
    encoded_key, encoded_value = encode((key, value))
    assert encoded_key.hex() == key_hex
    assert (None if encoded_value is None else encoded_value.hex()) == value_hex
    assert decode(encoded_key, encoded_value) == (key, value)


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        (0, "000000000000000b00017800000000000003e8"),
        (1, "000000000000000b00017800000000000003e800000000000007d0"),
        (2, "000000000000000b00017800000000000003e8"),
        (3, "000000000000000b0000000400017800000000000003e8"),
        (4, "000000000000000b00000004027800000000000003e800"),
    ],
)
def test_every_version_of_an_offset_commit(version: int, expected: str) -> None:
    assert encoder(r.OffsetCommitValue, version)(COMMIT).hex() == expected
    decoded = decode(
        bytes.fromhex("000100016700017400000009"), bytes([0, version]) + bytes.fromhex(expected)
    )
    assert decoded is not None
    key, value = decoded
    assert key == r.OffsetCommitKey(group="g", topic="t", partition=9)
    assert isinstance(value, r.OffsetCommitValue)
    assert (value.offset, value.metadata, value.commit_timestamp) == (11, "x", 1000)
    assert value.expire_timestamp == (2000 if version == 1 else r.NO_EXPIRATION)
    assert value.leader_epoch == (4 if version >= 3 else -1)


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        (
            0,
            "0008636f6e73756d657200000003000572616e676500036d2d310000000200036d2d31000163000a2f31"
            "32372e302e302e310000afc80000000300010200000002030400036d2d3200016400042f3a3a31000027"
            "100000000000000000",
        ),
        (
            1,
            "0008636f6e73756d657200000003000572616e676500036d2d310000000200036d2d31000163000a2f31"
            "32372e302e302e31000493e00000afc80000000300010200000002030400036d2d3200016400042f3a3a"
            "310000ea60000027100000000000000000",
        ),
        (
            2,
            "0008636f6e73756d657200000003000572616e676500036d2d310000018bcfe569c80000000200036d2d"
            "31000163000a2f3132372e302e302e31000493e00000afc80000000300010200000002030400036d2d32"
            "00016400042f3a3a310000ea60000027100000000000000000",
        ),
        (
            4,
            "09636f6e73756d6572000000030672616e6765046d2d310000018bcfe569c803046d2d3104692d310263"
            "0b2f3132372e302e302e31000493e00000afc80400010203030400046d2d32000264052f3a3a310000ea"
            "600000271001010000",
        ),
    ],
)
def test_every_other_version_of_a_group(version: int, expected: str) -> None:
    assert encoder(r.GroupMetadataValue, version)(GROUP).hex() == expected
    decoded = decode(
        bytes.fromhex("0002000767726f75702d31"), bytes([0, version]) + bytes.fromhex(expected)
    )
    assert decoded is not None
    value = decoded[1]
    assert isinstance(value, r.GroupMetadataValue)
    assert [member.assignment for member in value.members] == [b"\3\4", b""]
    assert value.current_state_timestamp == (GROUP.current_state_timestamp if version >= 2 else -1)


def test_the_oldest_kind_of_commit_is_read_like_its_successor() -> None:
    decoded = decode(
        bytes.fromhex("000000016700017400000009"),
        bytes.fromhex("0000000000000000000b00017800000000000003e8"),
    )
    assert decoded is not None
    assert decoded[0] == r.OffsetCommitKey(group="g", topic="t", partition=9)


def test_unknown_kinds_are_passed_over() -> None:
    assert 10 not in KINDS
    assert decode(b"\0\x0a\0\1g", b"\0\0anything") is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b"\0\0"),
        (b"\0", None),
        (b"\0\2\0\7grou", None),
        (b"\0\2\0\1g!", None),
        (b"\0\2\0\1g", b"\0"),
        (b"\0\2\0\1g", b"\0\5"),
        (b"\0\2\0\1g", b"\xff\xff"),
        (b"\0\2\0\1g", b"\0\3\0"),
        (b"\0\2\0\1g", (encode((r.GroupMetadataKey(), GROUP))[1] or b"") + b"!"),
    ],
)
def test_nonsense_is_an_error(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(RecordError):
        decode(key, value)
