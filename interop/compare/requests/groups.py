"""Classic groups and committed offsets."""

from __future__ import annotations

from collections.abc import Iterator

from compare.case import Case, Seen, asking, case, in_versions
from ottla.wire.message import Message
from ottla.wire.messages.delete_groups import DeleteGroupsRequest
from ottla.wire.messages.describe_groups import DescribeGroupsRequest
from ottla.wire.messages.heartbeat import HeartbeatRequest
from ottla.wire.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from ottla.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.wire.messages.list_groups import ListGroupsRequest
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from ottla.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from ottla.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

GROUP = "classic"


def join(group: str = GROUP, member: str = "", **fields: object) -> JoinGroupRequest:
    given: dict[str, object] = {
        "session_timeout": 300_000,
        "rebalance_timeout": 300_000,
        "protocol_type": "consumer",
        "protocols": [JoinGroupRequestProtocol(name="range", metadata=b"m")],
    } | fields
    return JoinGroupRequest(group_id=group, member_id=member, **given)  # type: ignore[arg-type]


def commit(
    group: str,
    offset: int = 5,
    *,
    topic: str = "full",
    index: int = 0,
    generation: int = -1,
    member: str = "",
    metadata: str | None = "",
    instance: str | None = None,
) -> OffsetCommitRequest:
    partition = OffsetCommitRequestPartition(
        partition_index=index, committed_offset=offset, committed_metadata=metadata
    )
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member,
        group_instance_id=instance,
        topics=[OffsetCommitRequestTopic(name=topic, partitions=[partition])],
    )


def fetch_old(group: str, *topics: tuple[str, list[int]]) -> OffsetFetchRequest:
    wanted = [OffsetFetchRequestTopic(name=name, partition_indexes=list_) for name, list_ in topics]
    return OffsetFetchRequest(group_id=group, topics=wanted)


def fetch_new(
    group: str, *topics: tuple[str, list[int]], member: str | None = None, epoch: int = -1
) -> OffsetFetchRequest:
    wanted = [
        OffsetFetchRequestTopics(name=name, partition_indexes=list_) for name, list_ in topics
    ]
    asked = OffsetFetchRequestGroup(
        group_id=group, topics=wanted, member_id=member, member_epoch=epoch
    )
    return OffsetFetchRequest(groups=[asked])


def cases() -> Iterator[Case]:
    """Yield the cases."""
    yield from _members()
    yield from _strangers()
    yield from _commits()
    yield from _offset_fetches()
    yield from _descriptions()
    yield from _removals()


def _remember_member(seen: Seen, answer: Message) -> None:
    assert isinstance(answer, JoinGroupResponse)
    seen.values["member"] = answer.member_id
    seen.values["generation"] = answer.generation_id


def _sync(seen: Seen, **fields: object) -> SyncGroupRequest:
    given: dict[str, object] = {
        "generation_id": seen.number("generation"),
        "protocol_type": "consumer",
        "protocol_name": "range",
        "assignments": [SyncGroupRequestAssignment(member_id=seen.text("member"), assignment=b"a")],
    } | fields
    return SyncGroupRequest(group_id=GROUP, member_id=seen.text("member"), **given)  # type: ignore[arg-type]


def _beat(
    seen: Seen, generation: int | None = None, instance: str | None = None
) -> HeartbeatRequest:
    return HeartbeatRequest(
        group_id=GROUP,
        generation_id=seen.number("generation") if generation is None else generation,
        member_id=seen.text("member"),
        group_instance_id=instance,
    )


def _members() -> Iterator[Case]:
    yield case("no member id", 9, join(), remember=_remember_member)
    yield asking(
        "with the member id", 9, JoinGroupRequest, lambda seen: join(member=seen.text("member")),
        remember=_remember_member,
    )  # fmt: skip
    yield asking("commit before the sync", 8, OffsetCommitRequest, lambda seen: commit(
        GROUP, member=seen.text("member"), generation=seen.number("generation")))  # fmt: skip
    wrong = {"another protocol type": "connect", "another protocol name": "sticky"}
    yield asking("another protocol type", 5, SyncGroupRequest,
        lambda seen: _sync(seen, protocol_type=wrong["another protocol type"]))  # fmt: skip
    yield asking("another protocol name", 5, SyncGroupRequest,
        lambda seen: _sync(seen, protocol_name=wrong["another protocol name"]))  # fmt: skip
    yield asking(
        "another generation", 5, SyncGroupRequest, lambda seen: _sync(seen, generation_id=9)
    )
    yield asking("the leader", 5, SyncGroupRequest, _sync)
    for version in (0, 3, 5):
        yield asking("again", version, SyncGroupRequest, _sync)
    for version in (0, 3, 4):
        yield asking("member", version, HeartbeatRequest, _beat)
    yield asking("another generation", 4, HeartbeatRequest, lambda seen: _beat(seen, 9))
    yield asking("unknown instance", 4, HeartbeatRequest, lambda seen: _beat(seen, None, "i"))
    yield asking("another protocol", 9, JoinGroupRequest, lambda seen: join(
        member=seen.text("member"), protocol_type="connect"))  # fmt: skip
    for generation in (-1, 9):
        yield asking(f"member in generation {generation}", 8, OffsetCommitRequest,
            lambda seen, g=generation: commit(GROUP, member=seen.text("member"), generation=g))  # type: ignore[misc]  # fmt: skip
    yield case("without a member while there are some", 8, commit(GROUP))
    yield case("unknown member", 8, commit(GROUP, member="x", generation=1))
    yield asking(
        "member",
        8,
        OffsetCommitRequest,
        lambda seen: commit(
            GROUP,
            member=seen.text("member"),
            generation=seen.number("generation"),
            metadata="note",
        ),
    )
    yield case("stable group", 6, DescribeGroupsRequest(groups=[GROUP]))
    yield case("active group", 2, DeleteGroupsRequest(groups_names=[GROUP]))
    yield asking("same member joins again", 5, JoinGroupRequest, lambda seen: join(
        member=seen.text("member")), remember=_remember_member)  # fmt: skip
    yield asking("sync again", 4, SyncGroupRequest, _sync)


def _strangers() -> Iterator[Case]:
    yield from in_versions("unknown member", (0, 4, 5, 9), join(member="x"))
    yield case("unknown group and member", 9, join("nobody", "x"))
    yield case("empty group", 9, join(""))
    yield case("empty group", 2, join(""))
    yield case("session too short", 9, join(session_timeout=1))
    yield case("session too long", 9, join(session_timeout=99_999_999))
    yield case("negative session", 9, join(session_timeout=-1))
    yield case("no protocols", 9, join("new", protocols=[]))
    yield case("no protocol type", 9, join("new", protocol_type=""))
    yield case("other protocols", 9, join(
        protocols=[JoinGroupRequestProtocol(name="sticky", metadata=b"m")]))  # fmt: skip
    yield case("old client, other protocols", 3, join(
        protocols=[JoinGroupRequestProtocol(name="sticky", metadata=b"m")]))  # fmt: skip
    yield case("old client, other type", 3, join(protocol_type="connect"))
    for version in (0, 3, 4):
        yield case("unknown group", version, HeartbeatRequest(group_id="nobody", member_id="x"))
        yield case("unknown member", version, HeartbeatRequest(group_id=GROUP, member_id="x"))
    yield case("empty group", 4, HeartbeatRequest(group_id="", member_id="x"))
    yield case("empty member", 4, HeartbeatRequest(group_id=GROUP))
    for version in (0, 5):
        sync = SyncGroupRequest(
            group_id="nobody", member_id="x", protocol_type="consumer", protocol_name="range"
        )
        yield case("unknown group", version, sync)
        sync = SyncGroupRequest(
            group_id=GROUP, member_id="x", protocol_type="consumer", protocol_name="range"
        )
        yield case("unknown member", version, sync)
    yield case("no protocol", 5, SyncGroupRequest(group_id=GROUP, member_id="x"))
    yield case(
        "empty group", 5, SyncGroupRequest(group_id="", protocol_type="c", protocol_name="r")
    )
    for version in (0, 2):
        yield case("unknown group", version, LeaveGroupRequest(group_id="nobody", member_id="x"))
        yield case("unknown member", version, LeaveGroupRequest(group_id=GROUP, member_id="x"))
    for version in (3, 5):
        members = [MemberIdentity(member_id="x"), MemberIdentity(group_instance_id="i")]
        yield case("unknown group", version, LeaveGroupRequest(group_id="nobody", members=members))
        yield case("unknown members", version, LeaveGroupRequest(group_id=GROUP, members=members))
        yield case("no members", version, LeaveGroupRequest(group_id=GROUP))
    yield case(
        "empty group", 5, LeaveGroupRequest(group_id="", members=[MemberIdentity(member_id="x")])
    )


def _commits() -> Iterator[Case]:
    yield from in_versions("simple group", (2, 5, 6, 7, 8, 9), commit("simple", 7, metadata="note"))
    yield asking("simple group by id", 10, OffsetCommitRequest, lambda seen: _commit_by_id(
        "simple", seen.topic_id("full")))  # fmt: skip
    yield case("unknown id", 10, _commit_by_id("simple", b"\x01" * 16))
    yield case("no id", 10, _commit_by_id("simple", bytes(16)))
    yield from in_versions("unknown topic", (2, 8, 9), commit("simple", topic="nowhere"))
    yield case("unknown partition", 8, commit("simple", index=9))
    yield case("negative partition", 8, commit("simple", index=-1))
    yield case("negative offset", 8, commit("simple", -5, index=1))
    yield case("offset -1", 8, commit("simple", -1, index=1))
    yield case("null metadata", 8, commit("simple", 8, index=2, metadata=None))
    yield case("metadata too long", 8, commit("simple", metadata="m" * 5000))
    yield case("empty group", 8, commit(""))
    yield case("empty group", 2, commit(""))
    yield case("unknown member of an empty group", 8, commit("simple", member="x", generation=3))
    yield case("generation without a member", 8, commit("simple", generation=3))
    yield case("new group with a generation", 8, commit("new2", generation=3, member="x"))
    yield case("unknown instance", 8, commit("simple", instance="i"))
    yield case("no topics", 8, OffsetCommitRequest(group_id="simple"))
    twice = commit("simple", 7)
    twice.topics[0].partitions.append(OffsetCommitRequestPartition(committed_offset=9))
    yield case("partition twice", 8, twice)


def _commit_by_id(group: str, topic_id: bytes) -> OffsetCommitRequest:
    request = commit(group, 7)
    request.topics[0].topic_id = topic_id
    return request


def _fetch_by_id(group: str, topic_id: bytes) -> OffsetFetchRequest:
    request = fetch_new(group, ("", [0, 9]))
    topics = request.groups[0].topics
    assert topics is not None
    topics[0].topic_id = topic_id
    return request


def _offset_fetches() -> Iterator[Case]:
    known = ("full", [0, 1, 2, 9])
    yield from in_versions("simple group", (1, 2, 5, 6, 7), fetch_old("simple", known))
    yield from in_versions("simple group", (8, 9), fetch_new("simple", known))
    yield asking(
        "by id", 10, OffsetFetchRequest, lambda seen: _fetch_by_id("simple", seen.topic_id("full"))
    )
    yield case("by unknown id", 10, _fetch_by_id("simple", b"\x01" * 16))
    yield case("by no id", 10, _fetch_by_id("simple", bytes(16)))
    everything = OffsetFetchRequest(group_id="simple", topics=None)
    yield from in_versions("all offsets", (2, 7), everything)
    both = [
        OffsetFetchRequestGroup(group_id=name, topics=None) for name in ("simple", GROUP, "nobody")
    ]
    yield from in_versions("all offsets of groups", (8, 9, 10), OffsetFetchRequest(groups=both))
    yield from in_versions("unknown group", (1, 5, 7), fetch_old("nobody", known))
    yield case("unknown group", 9, fetch_new("nobody", known))
    yield from in_versions("unknown topic", (1, 7), fetch_old("simple", ("nowhere", [0])))
    yield case("no partitions", 7, fetch_old("simple", ("full", [])))
    yield case("no topics", 7, fetch_old("simple"))
    yield case("no topics", 9, fetch_new("simple"))
    yield case("empty group", 7, fetch_old("", known))
    yield case("empty group", 9, fetch_new("", known))
    yield case("no groups", 9, OffsetFetchRequest())
    yield case("member of a classic group", 9, fetch_new("simple", known, member="x", epoch=1))
    yield case("unknown group with a member", 9, fetch_new("nobody", known, member="x", epoch=1))
    yield case("member without an epoch", 9, fetch_new("simple", known, member="x"))
    twice = fetch_new("simple", ("full", [0]))
    twice.groups.append(twice.groups[0])
    yield case("group twice", 9, twice)
    stable = fetch_new("simple", known)
    stable.require_stable = True
    yield case("require stable", 9, stable)


def _descriptions() -> Iterator[Case]:
    for version in (0, 3, 4, 5, 6):
        yield case("simple group", version, DescribeGroupsRequest(groups=["simple"]))
        yield case("unknown group", version, DescribeGroupsRequest(groups=["nobody"]))
    yield case("empty id", 6, DescribeGroupsRequest(groups=[""]))
    yield case("no groups", 6, DescribeGroupsRequest())
    yield case("group twice", 6, DescribeGroupsRequest(groups=["simple", "simple"]))
    yield case(
        "operations",
        6,
        DescribeGroupsRequest(groups=["simple"], include_authorized_operations=True),
    )
    yield from in_versions("all", (0, 3, 4, 5), ListGroupsRequest())
    for states in (["Empty"], ["stable"], ["STABLE"], ["Dead"], ["no such"], [""]):
        yield case(f"states {states}", 4, ListGroupsRequest(states_filter=states))
    for types in (["classic"], ["Classic"], ["consumer"], ["share"], ["no such"]):
        yield case(f"types {types}", 5, ListGroupsRequest(types_filter=types))


def _removals() -> Iterator[Case]:
    def delete(group: str, topic: str, *indexes: int) -> OffsetDeleteRequest:
        partitions = [OffsetDeleteRequestPartition(partition_index=index) for index in indexes]
        topics = [OffsetDeleteRequestTopic(name=topic, partitions=partitions)]
        return OffsetDeleteRequest(group_id=group, topics=topics)

    yield case("an offset", 0, delete("simple", "full", 1))
    yield case("no offset there", 0, delete("simple", "empty", 0))
    yield case("unknown topic", 0, delete("simple", "nowhere", 0))
    yield case("unknown partition", 0, delete("simple", "full", 9))
    yield case("unknown group", 0, delete("nobody", "full", 0))
    yield case("empty group", 0, delete("", "full", 0))
    yield case("no topics", 0, OffsetDeleteRequest(group_id="simple"))
    yield case("no partitions", 0, delete("simple", "full"))
    yield case("subscribed group", 0, delete(GROUP, "full", 0))
    yield from in_versions("unknown group", (0, 1, 2), DeleteGroupsRequest(groups_names=["nobody"]))
    yield case("no groups", 2, DeleteGroupsRequest())
    yield case("empty id", 2, DeleteGroupsRequest(groups_names=[""]))
    yield case("group twice", 2, DeleteGroupsRequest(groups_names=["nobody", "nobody"]))
    yield asking("member twice", 5, LeaveGroupRequest, lambda seen: LeaveGroupRequest(
        group_id=GROUP, members=[MemberIdentity(member_id=seen.text("member"))] * 2))  # fmt: skip
    yield asking("gone member", 4, HeartbeatRequest, _beat)
    yield case("group that was left", 6, DescribeGroupsRequest(groups=[GROUP]))
    yield case("group that was left", 2, DeleteGroupsRequest(groups_names=[GROUP]))
    yield case("deleted group", 6, DescribeGroupsRequest(groups=[GROUP]))
    yield case("simple group", 2, DeleteGroupsRequest(groups_names=["simple"]))
    yield case("offsets of a deleted group", 9, fetch_new("simple", ("full", [0])))
