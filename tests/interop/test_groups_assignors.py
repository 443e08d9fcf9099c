"""Who gets what: eager and cooperative assignors of the clients, and those of the broker."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.harness.background_load import Load
from tests.harness.group import Group, partitions_of
from tests.harness.member.handle import Member
from tests.harness.member.spec import Spec

MakeTopic = Callable[[int], str]


def shares(group: Group) -> list[list[tuple[str, int]]]:
    return sorted(sorted(member.owned) for member in group.members)


@pytest.mark.parametrize("client", ["confluent", "kafka-python", "aiokafka"])
@pytest.mark.parametrize(
    ("assignor", "expected"),
    [
        ("range", [[("a", 0), ("a", 1), ("b", 0), ("b", 1)], [("a", 2), ("b", 2)]]),
        ("roundrobin", [[("a", 0), ("a", 2), ("b", 1)], [("a", 1), ("b", 0), ("b", 2)]]),
    ],
)
def test_eager_assignors_share_two_topics_their_way(
    group_servers: str,
    make_group_topic: MakeTopic,
    group_id: str,
    client: str,
    assignor: str,
    expected: list[list[tuple[str, int]]],
) -> None:
    a, b = sorted(make_group_topic(3) for _ in range(2))
    names = {"a": a, "b": b}
    spec = Spec(client, group_servers, group_id, (a, b), assignor=assignor)
    with Group(spec) as group:
        group.gather(partitions_of(a, 3) | partitions_of(b, 3), 2)
        assert shares(group) == [[(names[t], p) for t, p in share] for share in expected]


@pytest.mark.parametrize(
    ("assignor", "sizes"), [("uniform", {"a": 3, "b": 3}), ("range", {"a": 4, "b": 2})]
)
def test_the_brokers_assignors_share_two_topics_their_way(
    group_servers: str,
    make_group_topic: MakeTopic,
    group_id: str,
    assignor: str,
    sizes: dict[str, int],
) -> None:
    a, b = sorted(make_group_topic(3) for _ in range(2))
    spec = Spec(
        "confluent", group_servers, group_id, (a, b), protocol="consumer", assignor=assignor
    )
    with Group(spec) as group:
        group.gather(partitions_of(a, 3) | partitions_of(b, 3), 2)
        assert sorted(len(share) for share in shares(group)) == sorted(sizes.values())
        if assignor == "range":
            # Each topic is divided by itself, so the same member has more of both.
            larger = max(shares(group), key=len)
            assert [(topic == a, number) for topic, number in larger] == [
                (True, 0),
                (True, 1),
                (False, 0),
                (False, 1),
            ]


@pytest.mark.parametrize(
    ("client", "protocol", "assignor"),
    [
        ("confluent", "classic", "cooperative-sticky"),
        ("kafka-python", "classic", "cooperative-sticky"),
        ("confluent", "consumer", None),
    ],
)
def test_a_newcomer_does_not_stop_the_others(
    group_servers: str,
    make_group_topic: MakeTopic,
    group_id: str,
    client: str,
    protocol: str,
    assignor: str | None,
) -> None:
    count = 6
    topic = make_group_topic(count)
    keys = partitions_of(topic, count)
    spec = Spec(client, group_servers, group_id, (topic,), protocol=protocol, assignor=assignor)
    with Group(spec) as group, Load(group_servers, topic, count, per_second=800) as load:
        old = group.gather(keys, 2)
        before = {member.name: (len(member.snapshot()), member.owned) for member in old}
        group.gather(keys, 1)
        for member in old:
            seen, owned = before[member.name]
            kept = owned & member.owned
            assert kept
            assert _taken_since(member, seen) == owned - kept
        group.finish(load.stop(), once=True)


@pytest.mark.parametrize("client", ["confluent", "kafka-python", "aiokafka"])
def test_an_eager_group_gives_everything_up_and_gets_it_anew(
    group_servers: str, make_group_topic: MakeTopic, group_id: str, client: str
) -> None:
    count = 4
    topic = make_group_topic(count)
    keys = partitions_of(topic, count)
    spec = Spec(client, group_servers, group_id, (topic,), assignor="range")
    with Group(spec) as group:
        (old,) = group.gather(keys, 1)
        (newcomer,) = group.gather(keys, 1)
        assert _taken_since(old, 0) == keys
        generations = [event.generation for event in old.of_kind("assigned")]
        assert generations == sorted(set(generations))
        assert newcomer.of_kind("assigned")[-1].generation == generations[-1]


def _taken_since(member: Member, seen: int) -> set[tuple[str, int]]:
    """Return what the member gave up after its first `seen` events."""
    return {
        key
        for event in member.snapshot()[seen:]
        if event.kind == "revoked"
        for key in event.partitions
    }
