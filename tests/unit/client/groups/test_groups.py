from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from ottla.client.cluster import Client
from ottla.client.errors import ClientError, Refused, UnsupportedByBroker
from ottla.client.groups.groups import delete_groups, describe_groups, list_groups
from ottla.client.groups.lag import group_lag
from ottla.client.groups.members import assigned, subscribed
from ottla.client.groups.offsets import commit_offsets, delete_offsets, fetch_offsets
from ottla.client.groups.reset import (
    ShiftBy,
    Target,
    ToCurrent,
    ToOffset,
    ToOffsets,
    TopicScope,
    ToTime,
    plan_reset,
    require_empty,
    scope_of_group,
    scope_of_topics,
)
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.wire.api_table import API_INFO, ApiKey
from ottla.wire.messages import consumer_group_describe as new
from ottla.wire.messages import describe_groups as classic
from ottla.wire.messages import find_coordinator as find
from ottla.wire.messages import list_groups as listing
from ottla.wire.messages import offset_commit as commit
from ottla.wire.messages import offset_delete as delete
from ottla.wire.messages import offset_fetch as fetch
from ottla.wire.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from ottla.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from tests.support.scripted_broker import Connect, FakeBroker, Ranges, StartBroker

NODE_ID = 7
EVERYTHING = {key: (info.min_version, info.max_version) for key, info in API_INFO.items()}
KAFKA_2_2 = EVERYTHING | {
    ApiKey.FIND_COORDINATOR: (0, 2),
    ApiKey.LIST_GROUPS: (0, 2),
    ApiKey.DESCRIBE_GROUPS: (0, 2),
    ApiKey.OFFSET_FETCH: (1, 5),
    ApiKey.OFFSET_COMMIT: (2, 6),
    ApiKey.DELETE_GROUPS: (0, 1),
    ApiKey.CONSUMER_GROUP_DESCRIBE: (9, 9),
}
SUBSCRIPTION = bytes.fromhex("0000 00000002 0001 75 0001 74 ffffffff")
ASSIGNMENT = bytes.fromhex("0000 00000001 0001 74 00000002 00000001 00000000 ffffffff")
EARLIEST, LATEST = -2, -1


def coordinate(broker: FakeBroker, *, busy_for: int = 0) -> None:
    """Let a broker coordinate every group, after it is busy for this many requests."""
    left = busy_for

    def handle(request: find.FindCoordinatorRequest) -> find.FindCoordinatorResponse:
        nonlocal left
        left -= 1
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE if left >= 0 else ErrorCode.NONE
        where: dict[str, Any] = {
            "node_id": NODE_ID,
            "host": broker.address.host,
            "port": broker.address.port,
        }
        return find.FindCoordinatorResponse(
            error_code=code,
            coordinators=[
                find.Coordinator(key=key, error_code=code, **where)
                for key in request.coordinator_keys
            ],
            **where,
        )

    broker.handlers[ApiKey.FIND_COORDINATOR] = handle


def commits(broker: FakeBroker, offsets: dict[tuple[str, int], int]) -> None:
    """Let a broker return these committed offsets for any group."""

    def handle(request: fetch.OffsetFetchRequest) -> fetch.OffsetFetchResponse:
        by_topic: dict[str, dict[int, int]] = {}
        for (topic, partition), offset in offsets.items():
            by_topic.setdefault(topic, {})[partition] = offset
        old = [
            fetch.OffsetFetchResponseTopic(
                name=name,
                partitions=[
                    fetch.OffsetFetchResponsePartition(partition_index=p, committed_offset=o)
                    for p, o in found.items()
                ],
            )
            for name, found in by_topic.items()
        ]
        batched = [
            fetch.OffsetFetchResponseTopics(
                name=name,
                partitions=[
                    fetch.OffsetFetchResponsePartitions(
                        partition_index=p, committed_offset=o, metadata="m"
                    )
                    for p, o in found.items()
                ],
            )
            for name, found in by_topic.items()
        ]
        return fetch.OffsetFetchResponse(
            topics=old,
            groups=[
                fetch.OffsetFetchResponseGroup(group_id=group.group_id, topics=batched)
                for group in request.groups
            ],
        )

    broker.handlers[ApiKey.OFFSET_FETCH] = handle


def logs(broker: FakeBroker, ends: dict[int, tuple[int, int]], at_time: int = -1) -> None:
    """Let a broker return these earliest and latest offsets, and one offset for any time."""

    def handle(request: ListOffsetsRequest) -> ListOffsetsResponse:
        def offset(partition: int, timestamp: int) -> int:
            if timestamp == EARLIEST:
                return ends[partition][0]
            return ends[partition][1] if timestamp == LATEST else at_time

        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=[
                        ListOffsetsPartitionResponse(
                            partition_index=p.partition_index,
                            offset=offset(p.partition_index, p.timestamp),
                        )
                        for p in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    broker.handlers[ApiKey.LIST_OFFSETS] = handle


def described(
    broker: FakeBroker,
    groups: list[classic.DescribedGroup],
    found_new: Sequence[new.DescribedGroup] = (),
) -> None:
    """Let a broker describe these groups of the classic and of the new protocol."""

    def handle(request: classic.DescribeGroupsRequest) -> classic.DescribeGroupsResponse:
        known = {group.group_id: group for group in groups}
        return classic.DescribeGroupsResponse(
            groups=[
                known.get(name, classic.DescribedGroup(group_id=name, group_state="Dead"))
                for name in request.groups
            ]
        )

    def handle_new(
        request: new.ConsumerGroupDescribeRequest,
    ) -> new.ConsumerGroupDescribeResponse:
        known = {group.group_id: group for group in found_new}
        missing = ErrorCode.GROUP_ID_NOT_FOUND
        return new.ConsumerGroupDescribeResponse(
            groups=[
                known.get(name, new.DescribedGroup(group_id=name, error_code=missing))
                for name in request.group_ids
            ]
        )

    broker.handlers[ApiKey.DESCRIBE_GROUPS] = handle
    broker.handlers[ApiKey.CONSUMER_GROUP_DESCRIBE] = handle_new


def classic_group(name: str = "g", state: str = "Stable") -> classic.DescribedGroup:
    member = classic.DescribedGroupMember(
        member_id="m",
        client_id="c",
        client_host="/10.0.0.1",
        member_metadata=SUBSCRIPTION,
        member_assignment=ASSIGNMENT,
    )
    return classic.DescribedGroup(
        group_id=name,
        group_state=state,
        protocol_type="consumer",
        protocol_data="range",
        members=[member] if state == "Stable" else [],
    )


def test_a_list_has_state_and_type_where_the_broker_tells(
    start_broker: StartBroker, connect: Connect
) -> None:
    found = listing.ListedGroup(
        group_id="g", protocol_type="consumer", group_state="Empty", group_type="Classic"
    )
    for ranges, expected in ((EVERYTHING, ("Empty", "classic")), (KAFKA_2_2, (None, None))):
        broker = start_broker(ranges)
        broker.handlers[ApiKey.LIST_GROUPS] = lambda _: listing.ListGroupsResponse(groups=[found])
        (group,) = list_groups(connect(broker.address))
        assert (group.group, group.state, group.group_type) == ("g", *expected)
        assert group.coordinator == NODE_ID


def test_an_old_broker_cannot_choose(start_broker: StartBroker, connect: Connect) -> None:
    client = connect(start_broker(KAFKA_2_2).address)
    with pytest.raises(UnsupportedByBroker, match=r"older than Kafka 2\.6"):
        list_groups(client, states=["Empty"])
    with pytest.raises(UnsupportedByBroker, match=r"older than Kafka 3\.8"):
        list_groups(client, types=["classic"])


@pytest.mark.parametrize("ranges", [EVERYTHING, KAFKA_2_2], ids=["new", "old"])
def test_a_classic_group_is_described_by_any_broker(
    start_broker: StartBroker, connect: Connect, ranges: Ranges
) -> None:
    broker = start_broker(ranges)
    coordinate(broker, busy_for=1)
    described(broker, [classic_group()])
    (group,) = describe_groups(connect(broker.address), ["g"])
    assert (group.group_type, group.state, group.assignor) == ("classic", "Stable", "range")
    assert group.coordinator == (NODE_ID, broker.address)
    (member,) = group.members
    assert (member.host, member.subscribed_topics) == ("10.0.0.1", ["t", "u"])
    assert member.assignment == [TopicPartition("t", 0), TopicPartition("t", 1)]
    assert (member.epoch, member.target) == (None, None)


def test_a_group_of_the_new_protocol_is_described(
    fake_broker: FakeBroker, connect: Connect
) -> None:
    parts = new.TopicPartitions(topic_name="t", partitions=[2, 0])
    member = new.Member(
        member_id="m",
        member_epoch=4,
        subscribed_topic_regex="t.*",
        member_type=1,
        assignment=new.Assignment(topic_partitions=[parts]),
        target_assignment=new.Assignment(),
    )
    group = new.DescribedGroup(
        group_id="g", group_state="Reconciling", group_epoch=5, assignor_name="uniform",
        members=[member],
    )  # fmt: skip
    coordinate(fake_broker)
    described(fake_broker, [classic_group("old")], [group])
    found, old = describe_groups(connect(fake_broker.address), ["g", "old"])
    assert (found.group_type, found.epoch, found.state) == ("consumer", 5, "Reconciling")
    assert found.members[0].assignment == [TopicPartition("t", 0), TopicPartition("t", 2)]
    assert (found.members[0].target, found.members[0].subscribed_regex) == ([], "t.*")
    assert old.group_type == "classic"


def test_a_group_that_is_not_there(fake_broker: FakeBroker, connect: Connect) -> None:
    coordinate(fake_broker)
    described(fake_broker, [])
    with pytest.raises(Refused, match="there is no such group") as caught:
        describe_groups(connect(fake_broker.address), ["g"])
    assert caught.value.code == ErrorCode.GROUP_ID_NOT_FOUND


def test_what_clients_wrote_and_cannot_be_read() -> None:
    assert subscribed(SUBSCRIPTION) == ["t", "u"]
    for damaged in (b"", b"\x00", b"\xff\xff", SUBSCRIPTION[:7], bytes(2) + b"\x7f\xff\xff\xff"):
        assert subscribed(damaged) == []
        assert assigned(damaged) == []
    # A version from the future begins like the newest one known.
    assert assigned(b"\x00\x09" + ASSIGNMENT[2:]) == assigned(ASSIGNMENT)


def test_groups_are_deleted_one_by_one(fake_broker: FakeBroker, connect: Connect) -> None:
    coordinate(fake_broker)
    codes = {"busy": ErrorCode.NON_EMPTY_GROUP, "gone": ErrorCode.GROUP_ID_NOT_FOUND}

    def handle(request: DeleteGroupsRequest) -> DeleteGroupsResponse:
        (name,) = request.groups_names
        return DeleteGroupsResponse(
            results=[DeletableGroupResult(group_id=name, error_code=codes.pop(name, 0))]
        )

    codes["moved"] = ErrorCode.NOT_COORDINATOR
    fake_broker.handlers[ApiKey.DELETE_GROUPS] = handle
    outcomes = delete_groups(connect(fake_broker.address), ["fine", "busy", "gone", "moved"])
    assert [outcome.error and outcome.error.code for outcome in outcomes] == [
        None,
        ErrorCode.NON_EMPTY_GROUP,
        ErrorCode.GROUP_ID_NOT_FOUND,
        None,
    ]
    assert "stop its consumers first" in str(outcomes[1].error)


@pytest.mark.parametrize("ranges", [EVERYTHING, KAFKA_2_2], ids=["new", "old"])
def test_lag_puts_offsets_ends_and_owners_together(
    start_broker: StartBroker, connect: Connect, ranges: Ranges
) -> None:
    broker = start_broker(ranges)
    broker.add_topic("t", 2)
    coordinate(broker)
    described(broker, [classic_group()])
    commits(broker, {("t", 0): 4, ("gone", 3): 9, ("t", 1): -1})
    logs(broker, {0: (0, 10), 1: (0, 6)})
    client = connect(broker.address)
    (group,) = describe_groups(client, ["g"])
    found = [
        (str(p.partition), p.committed and p.committed.offset, p.log_end_offset, p.lag)
        for p in group_lag(client, group)
    ]
    assert found == [("gone-3", 9, None, None), ("t-0", 4, 10, 6), ("t-1", None, 6, None)]
    assert broker.versions_asked()["OffsetFetchRequest"] <= 9


def planned(
    client: Client, target: Target, *keys: tuple[str, int]
) -> list[tuple[int | None, int | None, bool]]:
    partitions = [TopicPartition(*key) for key in keys]
    return [
        (step.committed_offset, step.new_offset, step.was_moved)
        for step in plan_reset(client, "g", partitions, target)
    ]


def test_plans(fake_broker: FakeBroker, connect: Connect) -> None:
    fake_broker.add_topic("t", 2)
    coordinate(fake_broker)
    commits(fake_broker, {("t", 0): 5})
    logs(fake_broker, {0: (2, 10), 1: (0, 20)}, at_time=7)
    client = connect(fake_broker.address)
    both = (("t", 0), ("t", 1))
    assert planned(client, ToTime(EARLIEST), *both) == [(5, 2, False), (None, 0, False)]
    assert planned(client, ToTime(LATEST), *both) == [(5, 10, False), (None, 20, False)]
    assert planned(client, ToTime(1234), *both) == [(5, 7, False), (None, 7, False)]
    assert planned(client, ToOffset(12), *both) == [(5, 10, True), (None, 12, False)]
    assert planned(client, ToOffset(0), both[0]) == [(5, 2, True)]
    assert planned(client, ToCurrent(), *both) == [(5, 5, False), (None, 20, False)]
    assert planned(client, ShiftBy(-2), both[0]) == [(5, 3, False)]
    offsets = ToOffsets({TopicPartition("t", 1): 3})
    assert planned(client, offsets, both[1]) == [(None, 3, False)]
    with pytest.raises(ClientError, match="t-1 has no committed offset"):
        planned(client, ShiftBy(1), *both)
    with pytest.raises(ClientError, match="partition t-9 does not exist"):
        planned(client, ToTime(LATEST), ("t", 9))


def test_a_time_after_the_last_record_is_the_end(fake_broker: FakeBroker, connect: Connect) -> None:
    fake_broker.add_topic("t", 1)
    coordinate(fake_broker)
    commits(fake_broker, {})
    logs(fake_broker, {0: (0, 10)}, at_time=-1)
    client = connect(fake_broker.address)
    assert planned(client, ToTime(1234), ("t", 0)) == [(None, 10, False)]


def test_scopes(fake_broker: FakeBroker, connect: Connect) -> None:
    fake_broker.add_topic("t", 3)
    coordinate(fake_broker)
    commits(fake_broker, {("t", 2): 5, ("gone", 0): 1})
    client = connect(fake_broker.address)
    assert [str(p) for p in scope_of_topics(client, [TopicScope("t", [2, 0])])] == ["t-0", "t-2"]
    assert len(scope_of_topics(client, [TopicScope("t"), TopicScope("t", [1])])) == 3
    assert [str(p) for p in scope_of_group(client, "g")] == ["t-2"]
    with pytest.raises(ClientError, match="topic t has no partition 3"):
        scope_of_topics(client, [TopicScope("t", [3])])


def test_only_empty_groups_may_be_reset(fake_broker: FakeBroker, connect: Connect) -> None:
    coordinate(fake_broker)
    described(fake_broker, [classic_group("busy"), classic_group("idle", "Empty")])
    client = connect(fake_broker.address)
    require_empty(client, "idle")
    require_empty(client, "new")
    with pytest.raises(ClientError, match=r"group busy is active \(Stable, 1 member\)"):
        require_empty(client, "busy")


@pytest.mark.parametrize("ranges", [EVERYTHING, KAFKA_2_2], ids=["new", "old"])
def test_offsets_are_set_as_somebody_from_outside(
    start_broker: StartBroker, connect: Connect, ranges: Ranges
) -> None:
    broker = start_broker(ranges)
    coordinate(broker)
    moved = iter([ErrorCode.NOT_COORDINATOR])

    def handle(request: commit.OffsetCommitRequest) -> commit.OffsetCommitResponse:
        code = next(moved, ErrorCode.NONE)
        refused = {0: code, 1: code or ErrorCode.UNKNOWN_MEMBER_ID}
        return commit.OffsetCommitResponse(
            topics=[
                commit.OffsetCommitResponseTopic(
                    name=topic.name,
                    partitions=[
                        commit.OffsetCommitResponsePartition(
                            partition_index=p.partition_index,
                            error_code=refused[p.partition_index],
                        )
                        for p in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    broker.handlers[ApiKey.OFFSET_COMMIT] = handle
    offsets = {TopicPartition("t", 0): 4, TopicPartition("t", 1): 5}
    outcomes = commit_offsets(connect(broker.address), "g", offsets)
    assert [outcome.error and outcome.error.code for outcome in outcomes] == [
        None,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ]
    assert "stop its consumers first" in str(outcomes[1].error)
    request = broker.asked(commit.OffsetCommitRequest)[-1]
    assert (request.generation_id_or_member_epoch, request.member_id) == (-1, "")
    assert broker.versions_asked()["OffsetCommitRequest"] <= 9


def test_offsets_are_deleted(fake_broker: FakeBroker, connect: Connect) -> None:
    coordinate(fake_broker)
    subscribed_to = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    fake_broker.handlers[ApiKey.OFFSET_DELETE] = lambda _: delete.OffsetDeleteResponse(
        topics=[
            delete.OffsetDeleteResponseTopic(
                name="t",
                partitions=[
                    delete.OffsetDeleteResponsePartition(partition_index=0),
                    delete.OffsetDeleteResponsePartition(
                        partition_index=1, error_code=subscribed_to
                    ),
                ],
            )
        ]
    )
    client = connect(fake_broker.address)
    partitions = [TopicPartition("t", 0), TopicPartition("t", 1)]
    outcomes = delete_offsets(client, "g", partitions)
    assert [outcome.error and outcome.error.code for outcome in outcomes] == [None, subscribed_to]
    fake_broker.handlers[ApiKey.OFFSET_DELETE] = lambda _: delete.OffsetDeleteResponse(
        error_code=ErrorCode.GROUP_ID_NOT_FOUND
    )
    with pytest.raises(Refused, match="there is no such group"):
        delete_offsets(client, "g", partitions)


def test_an_error_of_one_groups_offsets_is_told(fake_broker: FakeBroker, connect: Connect) -> None:
    coordinate(fake_broker)
    fake_broker.handlers[ApiKey.OFFSET_FETCH] = lambda _: fetch.OffsetFetchResponse(
        groups=[
            fetch.OffsetFetchResponseGroup(
                group_id="g", error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED
            )
        ]
    )
    with pytest.raises(Refused, match="GROUP_AUTHORIZATION_FAILED"):
        fetch_offsets(connect(fake_broker.address), "g")
