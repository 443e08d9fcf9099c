"""Committed offsets: kept, fetched, bounded and deleted, with and without members."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.harness.classic import ClassicMember, assignment, commit, committed, subscription
from tests.harness.deadline import Deadline
from tests.harness.raw import RawConnection
from tests.harness.topics import topic_id_of

NONE = 0
UNKNOWN_TOPIC_OR_PARTITION = 3
OFFSET_METADATA_TOO_LARGE = 12
ILLEGAL_GENERATION = 22
GROUP_ID_NOT_FOUND = 69
GROUP_SUBSCRIBED_TO_TOPIC = 86
UNKNOWN_TOPIC_ID = 100
NO_OFFSET = -1
MAX_METADATA = 4096

MakeTopic = Callable[[int], str]


@pytest.mark.parametrize("version", range(2, 10))
def test_standalone_commits_of_every_version_are_fetched_by_every_version(
    group_raw: RawConnection, group_id: str, make_group_topic: MakeTopic, version: int
) -> None:
    key = (make_group_topic(2), 1)
    assert commit(group_raw, group_id, {key: 40 + version}, version=version) == {key: NONE}
    for fetch_version in range(1, 10):
        assert committed(group_raw, group_id, key, version=fetch_version) == {key: 40 + version}
    for fetch_version in range(2, 10):
        assert committed(group_raw, group_id, version=fetch_version) == {key: 40 + version}


def test_topics_by_id(group_raw: RawConnection, group_id: str, make_group_topic: MakeTopic) -> None:
    topic = make_group_topic(1)
    topic_id = topic_id_of(group_raw, topic)
    partition = {"partition_index": 0, "committed_offset": 7, "committed_leader_epoch": 0}
    (found,) = group_raw.request(
        "offset_commit",
        10,
        group_id=group_id,
        generation_id_or_member_epoch=-1,
        topics=[{"topic_id": topic_id, "partitions": [partition]}],
    ).topics
    assert (found.topic_id, found.partitions[0].error_code) == (topic_id, NONE)
    request = {"topic_id": topic_id, "partition_indexes": [0]}
    (group,) = group_raw.request(
        "offset_fetch", 10, groups=[{"group_id": group_id, "member_epoch": -1, "topics": [request]}]
    ).groups
    assert group.topics[0].topic_id == topic_id
    assert group.topics[0].partitions[0].committed_offset == 7
    assert committed(group_raw, group_id) == {(topic, 0): 7}


def test_an_id_nobody_has_is_an_unknown_topic(group_raw: RawConnection, group_id: str) -> None:
    stranger = uuid.uuid4()
    partition = {"partition_index": 0, "committed_offset": 7, "committed_leader_epoch": -1}
    (found,) = group_raw.request(
        "offset_commit",
        10,
        group_id=group_id,
        generation_id_or_member_epoch=-1,
        topics=[{"topic_id": stranger, "partitions": [partition]}],
    ).topics
    assert found.partitions[0].error_code == UNKNOWN_TOPIC_ID


def test_what_is_committed_beside_an_offset_comes_back(
    group_raw: RawConnection, group_id: str, make_group_topic: MakeTopic
) -> None:
    key = (make_group_topic(1), 0)
    commit(group_raw, group_id, {key: 3}, metadata="where I was: ß", leader_epoch=5)
    (group,) = group_raw.request(
        "offset_fetch",
        8,
        groups=[{"group_id": group_id, "topics": [{"name": key[0], "partition_indexes": [0]}]}],
    ).groups
    (found,) = group.topics[0].partitions
    assert (found.committed_offset, found.committed_leader_epoch) == (3, 5)
    assert found.metadata == "where I was: ß"


def test_what_was_never_committed_has_no_offset_and_is_no_error(
    group_raw: RawConnection, group_id: str, make_group_topic: MakeTopic
) -> None:
    topic = make_group_topic(1)
    assert committed(group_raw, group_id, (topic, 0), ("nowhere", 9)) == {
        (topic, 0): NO_OFFSET,
        ("nowhere", 9): NO_OFFSET,
    }
    assert committed(group_raw, group_id) == {}
    listed = [g.group_id for g in group_raw.request("list_groups", 4).groups]
    assert group_id not in listed


def test_each_partition_of_a_commit_has_its_own_answer(
    group_raw: RawConnection, group_id: str, make_group_topic: MakeTopic
) -> None:
    topic = make_group_topic(1)
    assert commit(group_raw, group_id, {(topic, 0): 1, (topic, 1): 1, ("nowhere", 0): 1}) == {
        (topic, 0): NONE,
        (topic, 1): UNKNOWN_TOPIC_OR_PARTITION,
        ("nowhere", 0): UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert committed(group_raw, group_id) == {(topic, 0): 1}


def test_metadata_has_a_limit(
    group_raw: RawConnection, group_id: str, make_group_topic: MakeTopic
) -> None:
    key = (make_group_topic(1), 0)
    largest, too_large = "x" * MAX_METADATA, "x" * (MAX_METADATA + 1)
    assert commit(group_raw, group_id, {key: 1}, metadata=largest) == {key: NONE}
    refused = commit(group_raw, group_id, {key: 2}, metadata=too_large)
    assert refused == {key: OFFSET_METADATA_TOO_LARGE}
    assert committed(group_raw, group_id) == {key: 1}
    assert commit(group_raw, group_id, {key: 3}, metadata=None) == {key: NONE}


def test_a_commit_that_claims_a_generation_needs_a_group(
    group_raw: RawConnection, group_id: str, make_group_topic: MakeTopic
) -> None:
    key = (make_group_topic(1), 0)
    assert commit(group_raw, group_id, {key: 1}, generation=1, member_id="m") == {
        key: ILLEGAL_GENERATION
    }


def test_a_group_without_a_name_may_have_offsets_though_no_members(
    group_raw: RawConnection, make_group_topic: MakeTopic
) -> None:
    key = (make_group_topic(1), 0)
    assert commit(group_raw, "", {key: 1}) == {key: NONE}
    assert committed(group_raw, "", key) == {key: 1}
    (answer,) = group_raw.request("delete_groups", 2, groups_names=[""]).results
    assert answer.error_code == NONE
    assert committed(group_raw, "", key) == {key: NO_OFFSET}


def test_several_groups_are_fetched_at_once(
    group_raw: RawConnection, group_id: str, make_group_topic: MakeTopic
) -> None:
    topic = make_group_topic(2)
    other = f"{group_id}-b"
    commit(group_raw, group_id, {(topic, 0): 1, (topic, 1): 2})
    commit(group_raw, other, {(topic, 1): 3})
    answer = group_raw.request(
        "offset_fetch",
        8,
        require_stable=True,
        groups=[
            {"group_id": group_id, "topics": None},
            {"group_id": other, "topics": [{"name": topic, "partition_indexes": [0, 1]}]},
            {"group_id": "none", "topics": None},
        ],
    )
    found = {
        group.group_id: sorted(
            (p.partition_index, p.committed_offset)
            for each in group.topics
            for p in each.partitions
        )
        for group in answer.groups
    }
    assert found == {group_id: [(0, 1), (1, 2)], other: [(0, NO_OFFSET), (1, 3)], "none": []}


def test_offsets_are_deleted_one_by_one(
    group_raw: RawConnection, group_id: str, make_group_topic: MakeTopic
) -> None:
    topic = make_group_topic(3)
    commit(group_raw, group_id, {(topic, number): number for number in range(3)})
    assert delete_offsets(group_raw, group_id, topic, 0, 2, 9) == (
        NONE,
        {0: NONE, 2: NONE, 9: UNKNOWN_TOPIC_OR_PARTITION},
    )
    assert committed(group_raw, group_id) == {(topic, 1): 1}
    assert delete_offsets(group_raw, f"{group_id}-none", topic, 0) == (GROUP_ID_NOT_FOUND, {})


def test_offsets_of_a_subscribed_topic_stay(
    group_raw: RawConnection, group_id: str, make_group_topic: MakeTopic
) -> None:
    mine, other = make_group_topic(1), make_group_topic(1)
    member = ClassicMember(group_raw, group_id, protocols=(("range", subscription(mine)),))
    member.stable(assignment(mine, 0))
    at: dict[str, Any] = {"generation": member.generation, "member_id": member.member_id}
    commit(group_raw, group_id, {(mine, 0): 1, (other, 0): 2}, **at)
    assert delete_offsets(group_raw, group_id, mine, 0) == (NONE, {0: GROUP_SUBSCRIBED_TO_TOPIC})
    assert delete_offsets(group_raw, group_id, other, 0) == (NONE, {0: NONE})
    assert committed(group_raw, group_id) == {(mine, 0): 1}


def test_a_deleted_topic_takes_its_offsets_with_it(
    group_raw: RawConnection, group_id: str, make_group_topic: MakeTopic
) -> None:
    gone, kept = make_group_topic(1), make_group_topic(1)
    commit(group_raw, group_id, {(gone, 0): 1, (kept, 0): 2})
    group_raw.request("delete_topics", 5, topic_names=[gone], timeout=10_000)
    deadline = Deadline(10)
    while committed(group_raw, group_id) != {(kept, 0): 2}:
        assert not deadline.passed, committed(group_raw, group_id)
        time.sleep(0.05)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_consumer_goes_on_where_the_one_before_had_committed(
    group_servers: str, group_id: str, make_group_topic: MakeTopic, protocol: str
) -> None:
    topic = make_group_topic(1)
    producer = Producer({"bootstrap.servers": group_servers})
    for number in range(20):
        producer.produce(topic, b"%d" % number)
    producer.flush(10)
    assert consume(group_servers, group_id, topic, protocol, 8) == list(range(8))
    assert consume(group_servers, group_id, topic, protocol, 12) == list(range(8, 20))


def test_a_consumer_without_membership_commits_and_finds_it_again(
    group_servers: str, group_id: str, make_group_topic: MakeTopic
) -> None:
    key = make_group_topic(2)
    config = {"bootstrap.servers": group_servers, "group.id": group_id, "log_level": 0}
    first = Consumer(config)
    first.assign([TopicPartition(key, 1, 0)])
    first.commit(offsets=[TopicPartition(key, 1, 5)], asynchronous=False)
    first.close()
    second = Consumer(config)
    (found,) = second.committed([TopicPartition(key, 1)], timeout=10)
    second.close()
    assert found.offset == 5


def consume(servers: str, group: str, topic: str, protocol: str, count: int) -> list[int]:
    """Read this many records with a new member, which commits the last one and leaves."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": group,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    consumer.subscribe([topic])
    found: list[int] = []
    deadline = Deadline(20)
    while len(found) < count:
        assert not deadline.passed, found
        message = consumer.poll(0.2)
        if message is not None and not message.error():
            found.append(int(message.value() or b""))
            consumer.commit(message=message, asynchronous=False)
    consumer.close()
    return found


def delete_offsets(
    raw: RawConnection, group: str, topic: str, *partitions: int
) -> tuple[int, dict[int, int]]:
    """Delete offsets; return the code of the request, and that of each partition."""
    answer = raw.request(
        "offset_delete",
        0,
        group_id=group,
        topics=[
            {"name": topic, "partitions": [{"partition_index": p} for p in partitions]},
        ],
    )
    codes = {
        found.partition_index: int(found.error_code)
        for each in answer.topics
        for found in each.partitions
    }
    return int(answer.error_code), codes
