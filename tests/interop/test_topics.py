"""Creating, describing, growing and deleting topics, with each client and Kafka's error codes."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

import pytest

from tests.harness.batches import batch_of
from tests.harness.deadline import eventually
from tests.harness.model import Admin, AdminError, Client, TopicDescription
from tests.harness.raw import RawConnection
from tests.harness.topics import create_topic, metadata_of, produce, topic_id_of

if TYPE_CHECKING:
    from ottla.testing import Cluster

UNKNOWN_TOPIC_OR_PARTITION = 3
INVALID_TOPIC_EXCEPTION = 17
TOPIC_ALREADY_EXISTS = 36
INVALID_PARTITIONS = 37
INVALID_REPLICATION_FACTOR = 38
INVALID_REPLICA_ASSIGNMENT = 39
INVALID_CONFIG = 40
INVALID_REQUEST = 42
POLICY_VIOLATION = 44
UNKNOWN_TOPIC_ID = 100


@pytest.fixture
def admin(client: Client, bootstrap_servers: str) -> Iterator[Admin]:
    with client.admin(bootstrap_servers) as admin:
        yield admin


def described(admin: Admin, name: str, partitions: int) -> TopicDescription:
    """Return the description once it shows this many partitions."""

    def look() -> TopicDescription | None:
        try:
            found = admin.describe_topic(name)
        except AdminError as error:
            if error.code != UNKNOWN_TOPIC_OR_PARTITION:
                raise
            return None
        return found if len(found.partitions) == partitions else None

    return eventually(look, f"{name} with {partitions} partitions")


def refusal(work: Callable[[], object]) -> int:
    with pytest.raises(AdminError) as caught:
        work()
    return caught.value.code


def test_create_describe_list_delete(admin: Admin, unused_name: str) -> None:
    admin.create_topic(unused_name, 3)
    found = described(admin, unused_name, 3)
    assert sorted(found.partitions) == [0, 1, 2]
    for leader, replicas, isr in found.partitions.values():
        assert replicas == isr == [leader]
    assert unused_name in admin.list_topics()

    admin.delete_topic(unused_name)
    eventually(lambda: unused_name not in admin.list_topics(), "the topic is gone")
    assert refusal(lambda: admin.delete_topic(unused_name)) == UNKNOWN_TOPIC_OR_PARTITION


def test_a_deleted_topic_can_be_made_again_and_is_empty(
    client: Client, admin: Admin, unused_name: str, bootstrap_servers: str, raw: RawConnection
) -> None:
    create_topic(bootstrap_servers, unused_name)
    first_id = topic_id_of(raw, unused_name)
    assert produce(raw, unused_name, batch_of([b"old"])).base_offset == 0
    admin.delete_topic(unused_name)
    eventually(lambda: unused_name not in admin.list_topics(), "the topic is gone")
    create_topic(bootstrap_servers, unused_name)
    assert topic_id_of(raw, unused_name) != first_id
    with client.consumer(bootstrap_servers) as consumer:
        assert consumer.watermarks(unused_name, 0) == (0, 0)
    admin.delete_topic(unused_name)


def test_create_with_configs(admin: Admin, unused_name: str) -> None:
    admin.create_topic(unused_name, configs={"retention.ms": "123456", "cleanup.policy": "compact"})
    described(admin, unused_name, 1)
    configs = admin.topic_configs(unused_name)
    assert configs["retention.ms"] == "123456"
    assert configs["cleanup.policy"] == "compact"
    assert configs["max.message.bytes"] == "1048588"
    admin.delete_topic(unused_name)


def test_create_with_an_assignment(admin: Admin, unused_name: str, raw: RawConnection) -> None:
    (broker,) = raw.request("metadata", 12, topics=[]).brokers
    admin.create_topic(unused_name, assignment=[[broker.node_id], [broker.node_id]])
    found = described(admin, unused_name, 2)
    assert {leader for leader, _, _ in found.partitions.values()} == {broker.node_id}
    admin.delete_topic(unused_name)


def test_an_assignment_to_nobody_is_refused(admin: Admin, unused_name: str) -> None:
    code = refusal(lambda: admin.create_topic(unused_name, assignment=[[4_711]]))
    assert code == INVALID_REPLICA_ASSIGNMENT


def test_validate_only_creates_nothing(admin: Admin, unused_name: str) -> None:
    admin.create_topic(unused_name, 3, validate_only=True)
    assert unused_name not in admin.list_topics()
    code = refusal(lambda: admin.create_topic(unused_name, 1, 7, validate_only=True))
    assert code == INVALID_REPLICATION_FACTOR


def test_a_topic_exists_once(admin: Admin, topic: str) -> None:
    assert refusal(lambda: admin.create_topic(topic)) == TOPIC_ALREADY_EXISTS


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "a\u00e9", "x" * 250, "a:b", "a\n"])
def test_bad_names_are_refused(raw: RawConnection, name: str) -> None:
    (made,) = raw.request(
        "create_topics",
        7,
        timeout=10_000,
        topics=[{"name": name, "num_partitions": 1, "replication_factor": 1}],
    ).topics
    assert made.error_code == INVALID_TOPIC_EXCEPTION
    assert made.error_message


def test_the_longest_name_is_fine(admin: Admin) -> None:
    name = f"{uuid.uuid4().hex}{'x' * 249}"[:249]
    admin.create_topic(name)
    described(admin, name, 1)
    admin.delete_topic(name)


def test_names_that_differ_in_dot_and_underscore_collide(admin: Admin, unused_name: str) -> None:
    admin.create_topic(unused_name + ".a")
    described(admin, unused_name + ".a", 1)
    code = refusal(lambda: admin.create_topic(unused_name + "_a"))
    assert code == INVALID_TOPIC_EXCEPTION
    admin.delete_topic(unused_name + ".a")


@pytest.mark.parametrize(
    ("partitions", "replicas", "expected"),
    [
        (0, 1, INVALID_PARTITIONS),
        (-2, 1, INVALID_PARTITIONS),
        (1, 0, INVALID_REPLICATION_FACTOR),
        (1, 2, INVALID_REPLICATION_FACTOR),
        (1, -2, INVALID_REPLICATION_FACTOR),
    ],
)
def test_bad_counts_are_refused(
    raw: RawConnection, unused_name: str, partitions: int, replicas: int, expected: int
) -> None:
    (made,) = raw.request(
        "create_topics",
        7,
        timeout=10_000,
        topics=[
            {"name": unused_name, "num_partitions": partitions, "replication_factor": replicas}
        ],
    ).topics
    assert made.error_code == expected
    assert made.error_message


def test_minus_one_means_the_brokers_default(raw: RawConnection, unused_name: str) -> None:
    (made,) = raw.request(
        "create_topics",
        7,
        timeout=10_000,
        topics=[{"name": unused_name, "num_partitions": -1, "replication_factor": -1}],
    ).topics
    assert (made.error_code, made.num_partitions, made.replication_factor) == (0, 1, 1)
    assert {each.name: each.value for each in made.configs}["cleanup.policy"] == "delete"
    raw.request("delete_topics", 5, topic_names=[unused_name], timeout=10_000)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("no.such.setting", "1"),
        ("retention.ms", "soon"),
        ("cleanup.policy", "shred"),
        ("segment.bytes", "-1"),
        ("min.insync.replicas", "0"),
        ("compression.type", "rar"),
    ],
)
def test_bad_configs_are_refused(admin: Admin, unused_name: str, name: str, value: str) -> None:
    code = refusal(lambda: admin.create_topic(unused_name, configs={name: value}))
    assert code == INVALID_CONFIG
    assert unused_name not in admin.list_topics()


def test_the_same_topic_twice_in_a_request(raw: RawConnection, unused_name: str) -> None:
    topic = {"name": unused_name, "num_partitions": 1, "replication_factor": 1}
    made = raw.request("create_topics", 7, timeout=10_000, topics=[topic, topic]).topics
    assert {int(each.error_code) for each in made} == {INVALID_REQUEST}


def test_more_partitions_than_anyone_means_are_refused(
    raw: RawConnection, unused_name: str
) -> None:
    (made,) = raw.request(
        "create_topics",
        7,
        timeout=10_000,
        topics=[{"name": unused_name, "num_partitions": 1_000_000, "replication_factor": 1}],
    ).topics
    assert made.error_code == POLICY_VIOLATION
    assert made.error_message


def test_nor_are_they_added(start_cluster: Callable[..., Cluster]) -> None:
    # Kafka 4.3 takes a while and answers UNKNOWN_SERVER_ERROR, so this is about Ottla only.
    cluster = start_cluster(memory=True)
    create_topic(cluster.bootstrap_servers, "t")
    with RawConnection(cluster.bootstrap_servers) as raw:
        (grown,) = raw.request(
            "create_partitions",
            3,
            timeout=10_000,
            topics=[{"name": "t", "count": 1_000_000, "assignments": None}],
        ).results
    assert grown.error_code == POLICY_VIOLATION


def test_one_refused_topic_does_not_spoil_the_others(raw: RawConnection, unused_name: str) -> None:
    made = raw.request(
        "create_topics",
        7,
        timeout=10_000,
        topics=[
            {"name": unused_name, "num_partitions": 1, "replication_factor": 1},
            {"name": "a b", "num_partitions": 1, "replication_factor": 1},
        ],
    ).topics
    assert {each.name: int(each.error_code) for each in made} == {
        unused_name: 0,
        "a b": INVALID_TOPIC_EXCEPTION,
    }
    raw.request("delete_topics", 5, topic_names=[unused_name], timeout=10_000)


def test_create_partitions(
    client: Client, admin: Admin, topic: str, bootstrap_servers: str
) -> None:
    admin.create_partitions(topic, 4)
    described(admin, topic, 4)
    with client.producer(bootstrap_servers) as producer:
        producer.send(topic, b"v", partition=3)
        assert producer.flush()[0].error == 0


def test_partitions_only_grow(admin: Admin, make_topic: Callable[..., str]) -> None:
    topic = make_topic(3)
    for count in (3, 2):
        assert refusal(partial(admin.create_partitions, topic, count)) == INVALID_PARTITIONS
    assert len(admin.describe_topic(topic).partitions) == 3


def test_partitions_of_an_unknown_topic(admin: Admin, unused_name: str) -> None:
    code = refusal(lambda: admin.create_partitions(unused_name, 2))
    assert code == UNKNOWN_TOPIC_OR_PARTITION


def test_create_partitions_validate_only(admin: Admin, topic: str) -> None:
    admin.create_partitions(topic, 5, validate_only=True)
    assert len(admin.describe_topic(topic).partitions) == 1


def test_delete_by_id(raw: RawConnection, unused_name: str, bootstrap_servers: str) -> None:
    topic_id = create_topic(bootstrap_servers, unused_name)
    unknown_id = uuid.UUID(int=99)
    deleted = raw.request(
        "delete_topics",
        6,
        timeout=10_000,
        topics=[{"name": None, "topic_id": topic_id}, {"name": None, "topic_id": unknown_id}],
    ).responses
    assert {each.topic_id: int(each.error_code) for each in deleted} == {
        topic_id: 0,
        unknown_id: UNKNOWN_TOPIC_ID,
    }


def test_metadata_by_id(raw: RawConnection, topic: str) -> None:
    topic_id = topic_id_of(raw, topic)
    (found,) = raw.request(
        "metadata",
        12,
        topics=[{"topic_id": topic_id, "name": None}],
        allow_auto_topic_creation=False,
    ).topics
    assert (found.error_code, found.name, found.topic_id) == (0, topic, topic_id)
    (found,) = raw.request(
        "metadata",
        12,
        topics=[{"topic_id": uuid.UUID(int=9), "name": None}],
        allow_auto_topic_creation=False,
    ).topics
    assert found.error_code == UNKNOWN_TOPIC_ID


def test_metadata_of_bad_and_unknown_names(raw: RawConnection, unused_name: str) -> None:
    found = metadata_of(raw, unused_name, "a b").topics
    assert {each.name: int(each.error_code) for each in found} == {
        unused_name: UNKNOWN_TOPIC_OR_PARTITION,
        "a b": INVALID_TOPIC_EXCEPTION,
    }


def test_describe_topic_partitions_page_by_page(
    raw: RawConnection, make_topic: Callable[..., str]
) -> None:
    topic = make_topic(5)
    first = raw.request(
        "describe_topic_partitions",
        0,
        topics=[{"name": topic}],
        response_partition_limit=3,
        cursor=None,
    )
    assert [each.partition_index for each in first.topics[0].partitions] == [0, 1, 2]
    assert (first.next_cursor.topic_name, first.next_cursor.partition_index) == (topic, 3)
    second = raw.request(
        "describe_topic_partitions",
        0,
        topics=[{"name": topic}],
        response_partition_limit=3,
        cursor={"topic_name": topic, "partition_index": 3},
    )
    assert [each.partition_index for each in second.topics[0].partitions] == [3, 4]
    assert second.next_cursor is None
