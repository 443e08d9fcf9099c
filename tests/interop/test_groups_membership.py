"""Members of real clients come, go, die and stand still while records keep coming."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest

from tests.harness.background_load import Load
from tests.harness.group import Group, partitions_of
from tests.harness.member.handle import Member
from tests.harness.member.spec import Spec

PARTITIONS = 6
SHORT_SESSION_MS = 1500
"""Of a member whose end has to be noticed. Others must outlive what a busy machine does to them."""


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
            session_timeout_ms=15_000,
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
    """Return enough kinds of members for what takes a session timeout."""
    return KINDS[request.param]


MakeTopic = Callable[[int], str]


def test_without_accidents_every_record_is_processed_once(
    group_servers: str, make_group_topic: MakeTopic, group_id: str, kind: Kind
) -> None:
    topic = make_group_topic(PARTITIONS)
    keys = partitions_of(topic, PARTITIONS)
    spec = kind.spec(group_servers, group_id, topic)
    with Group(spec) as group, Load(group_servers, topic, PARTITIONS) as load:
        first, second = group.gather(keys, 2)
        (third,) = group.gather(keys, 1)
        for member in (first, second, third):
            member.wait_for(lambda m: bool(m.of_kind("got")), "it gets records")
        first.stop()
        group.settle(keys, second, third)
        group.finish(load.stop(), once=True)


@pytest.mark.slow
def test_the_partitions_of_a_killed_member_move(
    group_servers: str, make_group_topic: MakeTopic, group_id: str, kind: Kind
) -> None:
    topic = make_group_topic(PARTITIONS)
    keys = partitions_of(topic, PARTITIONS)
    spec = kind.spec(group_servers, group_id, topic)
    with Group(spec) as group, Load(group_servers, topic, PARTITIONS) as load:
        (victim,) = group.gather(keys, 1, session_timeout_ms=SHORT_SESSION_MS)
        others = group.gather(keys, 2)
        victim.kill()
        group.settle(keys, *others)
        group.gather(keys, 1)
        group.finish(load.stop(), once=False)


@pytest.mark.slow
def test_a_member_that_stood_still_too_long_comes_back_as_a_new_one(
    group_servers: str, make_group_topic: MakeTopic, group_id: str, some_kind: Kind
) -> None:
    topic = make_group_topic(PARTITIONS)
    keys = partitions_of(topic, PARTITIONS)
    spec = some_kind.spec(group_servers, group_id, topic)
    with Group(spec) as group, Load(group_servers, topic, PARTITIONS) as load:
        (still,) = group.gather(keys, 1, session_timeout_ms=SHORT_SESSION_MS)
        (awake,) = group.gather(keys, 1)
        still.pause()
        awake.wait_for(lambda member: member.owned == keys, "it takes over everything")
        still.resume()
        still.wait_for(_commits_again, "it has joined anew, and its commits are taken")
        group.settle(keys, still, awake)
        group.finish(load.stop(), once=False)


@pytest.mark.slow
def test_a_group_of_all_clients_at_once(
    group_servers: str, make_group_topic: MakeTopic, group_id: str
) -> None:
    topic = make_group_topic(PARTITIONS)
    keys = partitions_of(topic, PARTITIONS)
    spec = KINDS["confluent-range"].spec(group_servers, group_id, topic)
    with Group(spec) as group, Load(group_servers, topic, PARTITIONS) as load:
        members = [
            group.gather(keys, 1, client=client)[0]
            for client in ("confluent", "kafka-python", "aiokafka")
        ]
        for member in members[:2]:
            member.stop()
        group.settle(keys, members[2])
        group.finish(load.stop(), once=True)


def _commits_again(member: Member) -> bool:
    """Return whether it was given partitions after it had been resumed, and has committed since."""
    kinds = [
        event.kind for event in member.snapshot() if event.kind != "assigned" or event.partitions
    ]
    since = kinds[kinds.index("resumed") :]
    return "assigned" in since and "committed" in since[since.index("assigned") :]
