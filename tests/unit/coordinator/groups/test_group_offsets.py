"""OffsetCommit, OffsetFetch, OffsetDelete: with and without membership."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from ottla.model.errors import ErrorCode
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from ottla.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from ottla.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from tests.support.groups import (
    GROUP,
    PARTITIONS,
    TOPIC,
    Broker,
    Client,
    Member,
    commit,
    commit_request,
    fetch,
    stable_group,
    subscription,
    sync_all,
)


def test_offsets_without_a_group_are_kept(broker: Broker) -> None:
    client = broker.connect()
    assert commit(client, {(TOPIC, 0): 5, (TOPIC, 3): 7}) == [0, 0]
    assert fetch(client) == {(TOPIC, 0): 5, (TOPIC, 3): 7}
    assert commit(client, {(TOPIC, 0): 6}) == [0]
    broker.crash_and_restart()
    assert fetch(broker.connect()) == {(TOPIC, 0): 6, (TOPIC, 3): 7}


@pytest.mark.parametrize("version", range(2, OffsetCommitRequest.MAX_VERSION + 1))
def test_every_version_of_commit(broker: Broker, version: int) -> None:
    client = broker.connect()
    request = commit_request({(TOPIC, 1): 42}, metadata="m", leader_epoch=3)
    request.topics[0].topic_id = broker.node.image.topics[TOPIC].topic_id
    response = client.ask(request, OffsetCommitResponse, version)
    assert response.topics[0].partitions[0].error_code == ErrorCode.NONE
    value = broker.committed(TOPIC, 1)
    assert (value.offset, value.metadata) == (42, "m")
    assert value.leader_epoch == (3 if version >= 6 else -1)
    assert value.commit_timestamp == broker.clock.now_ms


@pytest.mark.parametrize("version", range(1, 8))
def test_every_single_version_of_fetch(broker: Broker, version: int) -> None:
    client = broker.connect()
    commit(client, {(TOPIC, 1): 42}, metadata="m", leader_epoch=3)
    request = OffsetFetchRequest(
        group_id=GROUP, topics=[OffsetFetchRequestTopic(name=TOPIC, partition_indexes=[1, 2])]
    )
    response = client.ask(request, OffsetFetchResponse, version)
    assert response.error_code == ErrorCode.NONE
    found, missing = response.topics[0].partitions
    assert (found.committed_offset, found.metadata) == (42, "m")
    assert found.committed_leader_epoch == (3 if version >= 5 else -1)
    assert (missing.committed_offset, missing.metadata, missing.error_code) == (-1, "", 0)
    if version >= 2:
        everything = client.ask(
            OffsetFetchRequest(group_id=GROUP, topics=None), OffsetFetchResponse, version
        )
        assert [p.partition_index for p in everything.topics[0].partitions] == [1]


@pytest.mark.parametrize("version", [8, 9, 10])
def test_every_batched_version_of_fetch(broker: Broker, version: int) -> None:
    client = broker.connect()
    topic_id = broker.node.image.topics[TOPIC].topic_id
    commit(client, {(TOPIC, 1): 42})
    commit(client, {(TOPIC, 2): 43}, group_id="second")
    asked = [OffsetFetchRequestTopics(name=TOPIC, topic_id=topic_id, partition_indexes=[1])]
    request = OffsetFetchRequest(
        require_stable=True,
        groups=[
            OffsetFetchRequestGroup(group_id=GROUP, topics=asked),
            OffsetFetchRequestGroup(group_id="second", topics=None),
            OffsetFetchRequestGroup(group_id="third", topics=asked),
        ],
    )
    response = client.ask(request, OffsetFetchResponse, version)
    assert [group.group_id for group in response.groups] == [GROUP, "second", "third"]
    offsets = [
        [(p.partition_index, p.committed_offset) for t in group.topics for p in t.partitions]
        for group in response.groups
    ]
    assert offsets == [[(1, 42)], [(2, 43)], [(1, -1)]]
    if version >= 10:
        assert {t.topic_id for group in response.groups for t in group.topics} == {topic_id}


def test_unknown_topics_and_partitions(broker: Broker) -> None:
    client = broker.connect()
    codes = commit(client, {(TOPIC, PARTITIONS): 1, (TOPIC, -1): 1, ("other", 0): 1, (TOPIC, 0): 1})
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes == [unknown, unknown, 0, unknown]
    assert fetch(client) == {(TOPIC, 0): 1}
    assert fetch(client, [("other", 0), (TOPIC, 99)]) == {}


def test_unknown_topic_ids(broker: Broker) -> None:
    client = broker.connect()
    request = OffsetCommitRequest(
        group_id=GROUP,
        generation_id_or_member_epoch=-1,
        topics=[
            OffsetCommitRequestTopic(
                topic_id=b"x" * 16, partitions=[OffsetCommitRequestPartition(partition_index=0)]
            )
        ],
    )
    response = client.ask(request, OffsetCommitResponse, 10)
    assert response.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    asked = OffsetFetchRequest(
        groups=[
            OffsetFetchRequestGroup(
                group_id=GROUP,
                topics=[OffsetFetchRequestTopics(topic_id=b"x" * 16, partition_indexes=[0])],
            )
        ]
    )
    (group,) = client.ask(asked, OffsetFetchResponse, 10).groups
    assert group.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert group.topics[0].topic_id == b"x" * 16


def test_only_unknown_topics_make_no_group(broker: Broker) -> None:
    client = broker.connect()
    commit(client, {("other", 0): 1})
    assert GROUP not in broker.shard().groups


def test_metadata_has_a_limit(broker: Broker) -> None:
    client = broker.connect()
    assert commit(client, {(TOPIC, 0): 1}, metadata="x" * 4096) == [0]
    assert commit(client, {(TOPIC, 0): 2}, metadata="x" * 4097) == [
        ErrorCode.OFFSET_METADATA_TOO_LARGE
    ]
    assert commit(client, {(TOPIC, 0): 3}, metadata=None) == [0]
    assert broker.committed(TOPIC, 0).metadata == ""


def test_a_commit_larger_than_a_batch_may_be_is_refused_as_a_whole() -> None:
    broker = Broker()
    broker.create_topic("wide", 400)
    client = broker.connect()
    codes = commit(client, {("wide", i): i for i in range(400)}, metadata="x" * 4000)
    assert set(codes) == {ErrorCode.UNKNOWN_SERVER_ERROR}
    assert fetch(client) == {}
    assert commit(client, {("wide", i): i for i in range(400)}) == [0] * 400


def test_members_commit_in_their_generation_only(broker: Broker) -> None:
    member, other = Member(broker, "a"), Member(broker, "b")
    stable_group(broker, member)
    assert member.commit(1) == ErrorCode.NONE
    assert member.commit(1, generation_id_or_member_epoch=0) == ErrorCode.ILLEGAL_GENERATION
    assert member.commit(1, generation_id_or_member_epoch=2) == ErrorCode.ILLEGAL_GENERATION
    assert member.commit(1, generation_id_or_member_epoch=-1) == ErrorCode.ILLEGAL_GENERATION
    assert member.commit(1, member_id="nobody") == ErrorCode.UNKNOWN_MEMBER_ID
    assert member.commit(1, member_id="") == ErrorCode.UNKNOWN_MEMBER_ID
    assert member.commit(1, group_instance_id="i") == ErrorCode.UNKNOWN_MEMBER_ID
    assert member.commit(1, group_id="other") == ErrorCode.GROUP_ID_NOT_FOUND
    assert fetch(member.client) == {(TOPIC, 0): 1}
    other.join()
    assert member.commit(2) == ErrorCode.NONE  # the rebalance has begun, the generation not ended
    member.join()
    assert member.joined.generation_id == 2
    assert member.commit(3) == ErrorCode.REBALANCE_IN_PROGRESS
    assert member.commit(3, generation_id_or_member_epoch=1) == ErrorCode.ILLEGAL_GENERATION
    sync_all([member, other])
    assert member.commit(4) == ErrorCode.NONE
    assert fetch(member.client) == {(TOPIC, 0): 4}


def test_old_versions_hear_illegal_generation_of_a_group_that_is_not_there(broker: Broker) -> None:
    request = commit_request({(TOPIC, 0): 1}, generation_id=3, member_id="m")
    for version, code in ((8, ErrorCode.ILLEGAL_GENERATION), (9, ErrorCode.GROUP_ID_NOT_FOUND)):
        response = broker.connect().ask(request, OffsetCommitResponse, version)
        assert response.topics[0].partitions[0].error_code == code


def test_outsiders_commit_only_when_the_group_is_empty(broker: Broker) -> None:
    member = Member(broker)
    stable_group(broker, member)
    client = broker.connect()
    assert commit(client, {(TOPIC, 0): 9}) == [ErrorCode.UNKNOWN_MEMBER_ID]
    member.leave()
    assert commit(client, {(TOPIC, 0): 9}) == [0]


def test_an_empty_group_id_has_offsets_as_any_other(broker: Broker) -> None:
    client = broker.connect()
    assert commit(client, {(TOPIC, 0): 3}, group_id="") == [0]
    assert fetch(client, group_id="") == {(TOPIC, 0): 3}


def test_several_commits_in_one_wake_up_are_one_write(broker: Broker) -> None:
    clients = [broker.connect() for _ in range(20)]
    broker.files.writes.clear()
    pending = [client.queue(commit_request({(TOPIC, 0): i}), 9) for i, client in enumerate(clients)]
    assert all(p.response is None for p in pending)
    broker.settle()
    assert all(p.of(OffsetCommitResponse).topics for p in pending)
    assert len([path for path, _ in broker.files.writes if path.endswith(".log")]) == 1
    assert fetch(clients[0]) == {(TOPIC, 0): 19}


def test_uncommitted_offsets_are_not_told(broker: Broker) -> None:
    writer, reader = broker.connect(), broker.connect()
    writing = writer.queue(commit_request({(TOPIC, 0): 5}), 9)
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=GROUP, topics=None)])
    reading = reader.queue(request, 9)
    reader.receive()
    assert reading.response is None
    broker.settle()
    assert writing.response is not None
    (group,) = reading.of(OffsetFetchResponse).groups
    assert group.topics[0].partitions[0].committed_offset == 5


def delete(
    client: Client, places: Iterable[tuple[str, int]], group_id: str = GROUP
) -> int | list[int]:
    topics: dict[str, list[OffsetDeleteRequestPartition]] = {}
    for topic, partition in places:
        topics.setdefault(topic, []).append(OffsetDeleteRequestPartition(partition_index=partition))
    request = OffsetDeleteRequest(
        group_id=group_id,
        topics=[OffsetDeleteRequestTopic(name=n, partitions=p) for n, p in topics.items()],
    )
    response = client.ask(request, OffsetDeleteResponse)
    if response.error_code:
        return response.error_code
    return [p.error_code for topic in response.topics for p in topic.partitions]


def test_offsets_are_deleted(broker: Broker) -> None:
    client = broker.connect()
    commit(client, {(TOPIC, 0): 5, (TOPIC, 1): 6})
    assert delete(client, [(TOPIC, 0), (TOPIC, 2), (TOPIC, 99), ("other", 0)]) == [
        0,
        0,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert fetch(client) == {(TOPIC, 1): 6}
    broker.crash_and_restart()
    assert fetch(broker.connect()) == {(TOPIC, 1): 6}


def test_with_its_last_offset_a_group_without_members_is_gone(broker: Broker) -> None:
    client = broker.connect()
    commit(client, {(TOPIC, 0): 5})
    delete(client, [(TOPIC, 0)])
    assert GROUP not in broker.shard().groups
    assert delete(client, [(TOPIC, 0)]) == ErrorCode.GROUP_ID_NOT_FOUND
    assert delete(client, [(TOPIC, 0)], group_id="") == ErrorCode.INVALID_GROUP_ID


def test_offsets_of_subscribed_topics_are_not_deleted(broker: Broker) -> None:
    broker.create_topic("old")
    client = broker.connect()
    commit(client, {("old", 0): 1, (TOPIC, 0): 1})
    member = Member(broker)
    stable_group(broker, member)
    assert delete(client, [("old", 0), (TOPIC, 0)]) == [0, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC]
    assert fetch(client) == {(TOPIC, 0): 1}


def test_what_cannot_be_read_as_a_subscription_may_be_any_topic(broker: Broker) -> None:
    client = broker.connect()
    commit(client, {(TOPIC, 0): 1})
    member = Member(broker, protocols=[("range", b"\0\0\xff\xff\xff\xff")])
    stable_group(broker, member)
    assert delete(client, [(TOPIC, 0)]) == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC]


def test_groups_of_other_protocol_types_must_be_empty(broker: Broker) -> None:
    client = broker.connect()
    commit(client, {(TOPIC, 0): 1})
    worker = Member(broker, protocol_type="connect", protocols=[("default", b"")])
    stable_group(broker, worker)
    assert delete(client, [(TOPIC, 0)]) == ErrorCode.NON_EMPTY_GROUP
    worker.leave()
    assert delete(client, [(TOPIC, 0)]) == [0]


@pytest.mark.parametrize(
    ("metadata", "topics"),
    [
        (subscription(), []),
        (subscription("a", "b"), ["a", "b"]),
        (b"\0\3" + subscription("ü")[2:].replace(b"\0\1\xc3", b"\0\2\xc3") + b"more", ["ü"]),
        (b"", None),
        (b"\0\0\0\0\0\1", None),
        (b"\0\0\0\0\0\1\0\5abc", None),
        (b"\0\0\x7f\xff\xff\xff", None),
        (b"\0\0\xff\xff\xff\xff", None),
        (b"\0\0\0\0\0\1\xff\xff", None),
        (b"\0\0\0\0\0\1\0\1\xff", None),
    ],
)
def test_topics_of_a_subscription(metadata: bytes, topics: list[str] | None) -> None:
    from ottla.coordinator.groups.classic.subscribed_topics import topics_of

    assert topics_of(metadata) == topics
