"""Plans of replicas: even, over racks, with little to copy; and Kafka's JSON files."""

from __future__ import annotations

from collections import Counter

import pytest

from ottla.client.topics.reassignment_plan import (
    Plan,
    PlanError,
    make_plan,
    partitions_from_json,
    plan_from_json,
    plan_to_json,
    topics_from_json,
)
from ottla.model.ids import TopicPartition


def current(*replicas: tuple[int, ...]) -> Plan:
    return {TopicPartition("t", index): ids for index, ids in enumerate(replicas)}


def load(plan: Plan) -> Counter[int]:
    return Counter(each for ids in plan.values() for each in ids)


def leads(plan: Plan) -> Counter[int]:
    return Counter(ids[0] for ids in plan.values())


BROKERS = {1: None, 2: None, 3: None}


def test_what_is_even_stays() -> None:
    even = current((1, 2), (2, 3), (3, 1))
    assert make_plan(even, BROKERS) == even


def test_a_new_broker_gets_its_share() -> None:
    old = current(*[(1, 2), (2, 1)] * 3)
    plan = make_plan(old, BROKERS)
    assert load(plan) == {1: 4, 2: 4, 3: 4}
    assert leads(plan) == {1: 2, 2: 2, 3: 2}
    assert sum(len(set(plan[name]) - set(old[name])) for name in plan) == 4


def test_a_broker_is_emptied() -> None:
    plan = make_plan(current((1, 2), (2, 3), (3, 1)), {1: None, 2: None})
    assert load(plan) == {1: 3, 2: 3}


def test_more_and_fewer_replicas() -> None:
    old = current((1,), (2,), (3,))
    more = make_plan(old, BROKERS, 2)
    assert [ids[0] for ids in more.values()] == [1, 2, 3]
    assert load(more) == {1: 2, 2: 2, 3: 2}
    fewer = make_plan(more, BROKERS, 1)
    assert load(fewer) == {1: 1, 2: 1, 3: 1}


@pytest.mark.parametrize("first", [(1, 2, 3), (2, 3, 1), (3, 2, 1), (1, 3, 2)])
def test_more_replicas_leave_the_others_where_they_are(first: tuple[int, ...]) -> None:
    plan = make_plan(current(*((each,) for each in first)), BROKERS, 2)
    assert tuple(ids[0] for ids in plan.values()) == first
    assert load(plan) == {1: 2, 2: 2, 3: 2}


def test_each_partition_is_in_different_racks() -> None:
    racks = {1: "a", 2: "a", 3: "b", 4: "b"}
    plan = make_plan(current(*[(1, 2)] * 4), racks)
    for ids in plan.values():
        assert {racks[each] for each in ids} == {"a", "b"}
    assert load(plan) == {1: 2, 2: 2, 3: 2, 4: 2}


def test_too_few_brokers() -> None:
    with pytest.raises(PlanError, match="3 replicas need as many brokers, but there are 2"):
        make_plan(current((1,)), {1: None, 2: None}, 3)


def test_files_can_be_read_again() -> None:
    plan = current((1, 2), (2, 3))
    assert plan_from_json(plan_to_json(plan)).plan == plan
    kafkas = (
        '{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,2],'
        '"log_dirs":["any","any"]}]}'
    )
    assert plan_from_json(kafkas) == (current((1, 2)), {})
    assert topics_from_json('{"topics":[{"topic":"a"}],"version":1}') == ["a"]
    assert partitions_from_json(kafkas) == [TopicPartition("t", 0)]


def test_a_file_names_log_directories() -> None:
    text = (
        '{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,2],'
        '"log_dirs":["any","/more"]},{"topic":"t","partition":1,"replicas":[3]}]}'
    )
    wanted = plan_from_json(text)
    assert wanted.log_dirs == {(2, TopicPartition("t", 0)): "/more"}
    assert wanted.only([TopicPartition("t", 1)]) == ({TopicPartition("t", 1): (3,)}, {})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("nothing", "not JSON"),
        ("[]", "should be like"),
        ('{"partitions": [1]}', "should be like"),
        ('{"partitions": [{"topic": "t", "partition": 0}]}', "not a partition with its replicas"),
        ('{"partitions": [{"topic": "t", "partition": 0, "replicas": []}]}', "not a partition"),
        ('{"partitions": [{"topic": "t", "partition": 0, "replicas": [true]}]}', "not a part"),
        (
            '{"partitions": [{"topic": "t", "partition": 0, "replicas": [1]},'
            ' {"topic": "t", "partition": 0, "replicas": [2]}]}',
            "t-0 is there twice",
        ),
        (
            '{"partitions": [{"topic": "t", "partition": 0, "replicas": [1, 2],'
            ' "log_dirs": ["any"]}]}',
            "2 replicas need as many log_dirs",
        ),
        (
            '{"partitions": [{"topic": "t", "partition": 0, "replicas": [1], "log_dirs": "/x"}]}',
            "should be a list of paths",
        ),
        (
            '{"partitions": [{"topic": "t", "partition": 0, "replicas": [1], "log_dirs": ["x"]}]}',
            "neither an absolute path",
        ),
    ],
)
def test_files_that_make_no_sense(text: str, words: str) -> None:
    with pytest.raises(PlanError, match=words):
        plan_from_json(text)
