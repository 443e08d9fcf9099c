"""Static members (KIP-345): a restart is no rebalance, and a name has one bearer."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.harness.background_load import Load
from tests.harness.deadline import eventually
from tests.harness.group import Group, partitions_of
from tests.harness.member.handle import Member
from tests.harness.member.spec import Spec

MakeTopic = Callable[[int], str]
PARTITIONS = 4
FENCED_INSTANCE_ID = 82
UNRELEASED_INSTANCE_ID = 111

WAYS = [
    ("confluent", "classic", "range"),
    ("kafka-python", "classic", "range"),
    ("aiokafka", "classic", "range"),
    ("confluent", "consumer", None),
]


@pytest.mark.parametrize(("client", "protocol", "assignor"), WAYS)
def test_a_restarted_static_member_gets_its_partitions_back_without_a_rebalance(
    group_servers: str,
    make_group_topic: MakeTopic,
    group_id: str,
    client: str,
    protocol: str,
    assignor: str | None,
) -> None:
    topic = make_group_topic(PARTITIONS)
    keys = partitions_of(topic, PARTITIONS)
    spec = Spec(
        client,
        group_servers,
        group_id,
        (topic,),
        protocol=protocol,
        assignor=assignor,
        session_timeout_ms=15_000,
    )
    with Group(spec) as group, Load(group_servers, topic, PARTITIONS) as load:
        (one,) = group.gather(keys, 1, instance_id="one")
        (two,) = group.gather(keys, 1, instance_id="two")
        had, seen = one.owned, _rebalances(two)
        one.stop()
        again = group.start(instance_id="one")
        group.settle(keys, again, two)
        assert again.owned == had
        assert _rebalances(two) == seen
        if protocol == "classic":
            assert _generation(again) == _generation(two)
        group.finish(load.stop(), once=True)
        assert _rebalances(two) == seen


def test_a_second_bearer_of_a_name_fences_the_first_in_the_classic_protocol(
    group_servers: str, make_group_topic: MakeTopic, group_id: str
) -> None:
    topic = make_group_topic(PARTITIONS)
    keys = partitions_of(topic, PARTITIONS)
    spec = Spec("confluent", group_servers, group_id, (topic,), instance_id="only")
    with Group(spec) as group:
        (first,) = group.gather(keys, 1)
        second = group.start()
        second.wait_for(lambda member: member.owned == keys, "the second has it all")
        first.wait_for(lambda member: _codes(member) != [], "the first is told")
        assert FENCED_INSTANCE_ID in _codes(first) or "fenced" in first.of_kind("failed")[0].text


def test_a_second_bearer_of_a_name_is_refused_in_the_new_protocol(
    group_servers: str, make_group_topic: MakeTopic, group_id: str
) -> None:
    topic = make_group_topic(PARTITIONS)
    keys = partitions_of(topic, PARTITIONS)
    spec = Spec(
        "confluent", group_servers, group_id, (topic,), instance_id="only", protocol="consumer"
    )
    with Group(spec) as group:
        (first,) = group.gather(keys, 1)
        second = group.start()
        eventually(lambda: _codes(second), "the second is told")
        assert "instance" in second.of_kind("failed")[0].text
        assert first.owned == keys
        assert not second.owned


def _rebalances(member: Member) -> int:
    return len(member.of_kind("assigned")) + len(member.of_kind("revoked"))


def _generation(member: Member) -> int:
    return member.of_kind("assigned")[-1].generation


def _codes(member: Member) -> list[int | None]:
    return [event.code for event in member.of_kind("failed")]
