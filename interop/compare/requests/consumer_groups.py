"""Groups of the new protocol (KIP-848)."""

from __future__ import annotations

from collections.abc import Iterator

from compare.case import Case, Seen, asking, case
from compare.requests.groups import commit, fetch_new, join
from ottla.wire.message import Message
from ottla.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from ottla.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    RequestTopicPartitions,
)
from ottla.wire.messages.delete_groups import DeleteGroupsRequest
from ottla.wire.messages.describe_groups import DescribeGroupsRequest
from ottla.wire.messages.heartbeat import HeartbeatRequest
from ottla.wire.messages.join_group import JoinGroupRequestProtocol
from ottla.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.wire.messages.list_groups import ListGroupsRequest
from ottla.wire.messages.offset_commit import OffsetCommitRequest

GROUP = "modern"
SUBSCRIPTION = [
    JoinGroupRequestProtocol(name="range", metadata=b"\0\0\0\0\0\1\0\4full\xff\xff\xff\xff")
]
"""Version 0 of a consumer's subscription, which Kafka decodes: to the topic `full`."""
MEMBER = "AAAAAAAAAAAAAAAAAAAAAA"


def beat(member: str = MEMBER, epoch: int = 0, **fields: object) -> ConsumerGroupHeartbeatRequest:
    joining: dict[str, object] = {"topic_partitions": None}
    if epoch == 0:
        joining = {
            "rebalance_timeout": 300_000,
            "subscribed_topic_names": ["full"],
            "topic_partitions": [],
        }
    given = {"group_id": GROUP} | joining | fields
    return ConsumerGroupHeartbeatRequest(member_id=member, member_epoch=epoch, **given)  # type: ignore[arg-type]


def cases() -> Iterator[Case]:
    """Yield the cases."""
    yield from _refused()
    yield from _members()
    yield from _other_requests()


def _refused() -> Iterator[Case]:
    wanted: dict[str, ConsumerGroupHeartbeatRequest] = {
        "no group": beat(group_id=""),
        "no member id": beat(""),
        "negative epoch": beat(epoch=-5),
        "no rebalance timeout": beat(rebalance_timeout=-1),
        "no topics": beat(subscribed_topic_names=None),
        "empty topics": beat(group_id="e", subscribed_topic_names=[]),
        "no partitions": beat(topic_partitions=None),
        "owned partitions when joining": beat(topic_partitions=[
            RequestTopicPartitions(topic_id=b"\x01" * 16, partitions=[0])]),
        "empty instance": beat(instance_id=""),
        "empty rack": beat(rack_id=""),
        "unknown assignor": beat(server_assignor="mine"),
        "static leave without an instance": beat(epoch=-2),
        "unknown group": beat(epoch=5, group_id="nobody"),
        "leave an unknown group": beat(epoch=-1, group_id="nobody"),
    }  # fmt: skip
    for name, request in wanted.items():
        for version in (0, 1):
            yield case(name, version, request)
    yield case(
        "bad regular expression", 1, beat(subscribed_topic_regex="[", subscribed_topic_names=None)
    )
    yield case("member id of 40 characters", 1, beat("m" * 40))


def _remember(seen: Seen, answer: Message) -> None:
    assert isinstance(answer, ConsumerGroupHeartbeatResponse)
    seen.values["modern member"] = answer.member_id or ""
    seen.values["modern epoch"] = answer.member_epoch


def _beat(seen: Seen, **fields: object) -> ConsumerGroupHeartbeatRequest:
    return beat(seen.text("modern member"), seen.number("modern epoch"), **fields)


def _members() -> Iterator[Case]:
    yield case("join", 1, beat(), remember=_remember)
    yield asking("nothing new", 1, ConsumerGroupHeartbeatRequest, _beat)
    yield asking(
        "owns all", 1, ConsumerGroupHeartbeatRequest,
        lambda seen: _beat(seen, topic_partitions=[
            RequestTopicPartitions(topic_id=seen.topic_id("full"), partitions=[0, 1, 2])]),
    )  # fmt: skip
    yield asking(
        "other topics", 1, ConsumerGroupHeartbeatRequest,
        lambda seen: _beat(seen, subscribed_topic_names=["full", "nowhere"]), remember=_remember,
    )  # fmt: skip
    yield case("unknown member", 1, beat("x", 3))
    yield case("epoch too new", 1, beat(MEMBER, 99))
    yield case("leave, unknown member", 1, beat("x", -1))
    yield case("static leave of an unknown instance", 1, beat("x", -2, instance_id="i"))
    for version in (0, 1):
        yield case("group", version, ConsumerGroupDescribeRequest(group_ids=[GROUP]))
        yield case("unknown group", version, ConsumerGroupDescribeRequest(group_ids=["nobody"]))
    yield case("classic group", 1, ConsumerGroupDescribeRequest(group_ids=["simple"]))
    yield case("empty id", 1, ConsumerGroupDescribeRequest(group_ids=[""]))
    yield case("no groups", 1, ConsumerGroupDescribeRequest())
    yield case("group twice", 1, ConsumerGroupDescribeRequest(group_ids=["nobody", "nobody"]))
    yield case(
        "operations",
        1,
        ConsumerGroupDescribeRequest(group_ids=[GROUP], include_authorized_operations=True),
    )


def _other_requests() -> Iterator[Case]:
    for version in (0, 5, 6):
        yield case("consumer group", version, DescribeGroupsRequest(groups=[GROUP]))
    yield case("with a consumer group", 5, ListGroupsRequest())
    yield case("consumer types", 5, ListGroupsRequest(types_filter=["Consumer"]))
    yield case("consumer group, unknown member", 9, join(GROUP, "x", protocols=SUBSCRIPTION))
    yield case("consumer group, other type", 9, join(GROUP, protocol_type="connect"))
    yield case("consumer group, unknown member", 4, HeartbeatRequest(group_id=GROUP, member_id="x"))
    yield case("consumer group, unknown member", 5, LeaveGroupRequest(
        group_id=GROUP, members=[MemberIdentity(member_id="x")]))  # fmt: skip
    yield case("consumer group without a member", 9, commit(GROUP))
    yield case("consumer group, unknown member", 9, commit(GROUP, member="x", generation=1))
    yield case("consumer group, stale epoch", 9, commit(GROUP, member=MEMBER, generation=0))
    yield case("consumer group, old version", 8, commit(GROUP, member=MEMBER, generation=99))
    yield asking(
        "consumer group",
        9,
        OffsetCommitRequest,
        lambda seen: commit(
            GROUP, member=seen.text("modern member"), generation=seen.number("modern epoch")
        ),
    )
    yield case("consumer group", 9, fetch_new(GROUP, ("full", [0])))
    yield case(
        "consumer group, unknown member", 9, fetch_new(GROUP, ("full", [0]), member="x", epoch=1)
    )
    yield case(
        "consumer group, stale epoch", 9, fetch_new(GROUP, ("full", [0]), member=MEMBER, epoch=99)
    )
    yield case("active consumer group", 2, DeleteGroupsRequest(groups_names=[GROUP]))
    yield asking(
        "leave", 1, ConsumerGroupHeartbeatRequest, lambda seen: beat(seen.text("modern member"), -1)
    )
    yield case("leave again", 1, beat(MEMBER, -1))
    yield case("group that was left", 1, ConsumerGroupDescribeRequest(group_ids=[GROUP]))
    yield case("empty consumer group", 2, DeleteGroupsRequest(groups_names=[GROUP]))
