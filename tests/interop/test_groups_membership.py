"""Members of real clients come, go, die and stand still while records keep coming."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest
from harness.deadline import eventually
from harness.group import Group, partitions_of
from harness.member.handle import Member
from harness.member.spec import Spec

from harness.load import Load

PARTITIONS = 6


class Kind(NamedTuple):
    """A client library with one of the ways it can be a member."""

    client: str
    protocol: str
    assignor: str | None

    def spec(self, servers: str, group: str, topic: str) -> Spec:
        return Spec(
            self.client,
            servers,
            group,
            (topic,),
            protocol=self.protocol,
            assignor=self.assignor,
            session_timeout_ms=1500,
        )


KINDS = {
    "confluent-range": Kind("confluent", "classic", "range"),
    "confluent-cooperative": Kind("confluent", "classic", "cooperative-sticky"),
    "confluent-consumer": Kind("confluent", "consumer", None),
    "kafka-python-range": Kind("kafka-python", "classic", "range"),
    "kafka-python-cooperative": Kind("kafka-python", "classic", "cooperative-sticky"),
    "aiokafka-roundrobin": Kind("aiokafka", "classic", "roundrobin"),
}


@pytest.fixture(params=sorted(KINDS))
def kind(request: pytest.FixtureRequest) -> Kind:
    return KINDS[request.param]


@pytest.fixture(params=["confluent-range", "confluent-consumer", "aiokafka-roundrobin"])
def some_kind(request: pytest.FixtureRequest) -> Kind:
    """Enough of them for what takes a session timeout."""
    return KINDS[request.param]


MakeTopic = Callable[[int], str]


def test_without_accidents_every_record_is_processed_once(
    group_servers: str, make_group_topic: MakeTopic, group_id: str, kind: Kind
) -> None:
    topic = make_group_topic(PARTITIONS)
    keys = partitions_of(topic, PARTITIONS)
    spec = kind.spec(group_servers, group_id, topic)
    with Group(spec) as group, Load(group_servers, topic, PARTITIONS) as load:
        first, second = group.start(), group.start()
        group.settle(keys, first, second)
        third = group.start()
        group.settle(keys, first, second, third)
        first.stop()
        group.settle(keys, second, third)
        group.finish(load.stop(), once=True)
        assert [len(member.of_kind("got")) > 0 for member in group.members] == [True] * 3


@pytest.mark.slow
def test_the_partitions_of_a_killed_member_move(
    group_servers: str, make_group_topic: MakeTopic, group_id: str, kind: Kind
) -> None:
    topic = make_group_topic(PARTITIONS)
    keys = partitions_of(topic, PARTITIONS)
    spec = kind.spec(group_servers, group_id, topic)
    with Group(spec) as group, Load(group_servers, topic, PARTITIONS) as load:
        members = [group.start() for _ in range(3)]
        group.settle(keys, *members)
        members[0].kill()
        group.settle(keys, *members[1:])
        newcomer = group.start()
        group.settle(keys, *members[1:], newcomer)
        group.finish(load.stop(), once=False)


@pytest.mark.slow
def test_a_member_that_stood_still_too_long_comes_back_as_a_new_one(
    group_servers: str, make_group_topic: MakeTopic, group_id: str, some_kind: Kind
) -> None:
    topic = make_group_topic(PARTITIONS)
    keys = partitions_of(topic, PARTITIONS)
    spec = some_kind.spec(group_servers, group_id, topic)
    with Group(spec) as group, Load(group_servers, topic, PARTITIONS) as load:
        still, awake = group.start(), group.start()
        group.settle(keys, still, awake)
        still.pause()
        awake.wait_for(lambda member: member.owned == keys, "it takes over everything")
        still.resume()
        eventually(lambda: _moved_on(still), "the one that stood still has joined anew")
        group.settle(keys, still, awake)
        group.finish(load.stop(), once=False)
        # What it commits after that is not refused any more.
        resumed_at = still.of_kind("resumed")[0].at
        assert any(event.at > resumed_at for event in still.of_kind("committed"))


@pytest.mark.slow
def test_a_group_of_all_clients_at_once(
    group_servers: str, make_group_topic: MakeTopic, group_id: str
) -> None:
    topic = make_group_topic(PARTITIONS)
    keys = partitions_of(topic, PARTITIONS)
    spec = KINDS["confluent-range"].spec(group_servers, group_id, topic)
    with Group(spec) as group, Load(group_servers, topic, PARTITIONS) as load:
        members = [
            group.start(client=client, assignor="range")
            for client in ("confluent", "kafka-python", "aiokafka")
        ]
        group.settle(keys, *members)
        for member in members[:2]:
            member.stop()
        group.settle(keys, members[2])
        group.finish(load.stop(), once=True)


def _moved_on(member: Member) -> bool:
    """Whether it was given partitions after it had been resumed."""
    resumed_at = member.of_kind("resumed")[0].at
    return any(event.at > resumed_at and event.partitions for event in member.of_kind("assigned"))
