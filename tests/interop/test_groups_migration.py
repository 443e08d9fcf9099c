"""A group changes its protocol while it runs: member by member, records flowing all the time."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.harness.background_load import Load
from tests.harness.deadline import eventually
from tests.harness.group import Group, partitions_of
from tests.harness.member.spec import Spec
from tests.harness.raw import RawConnection

PARTITIONS = 6
OLD = {"protocol": "classic", "assignor": "range"}
OLD_COOPERATIVE = {"protocol": "classic", "assignor": "cooperative-sticky"}
NEW = {"protocol": "consumer", "assignor": None}

MakeTopic = Callable[[int], str]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "after"),
    # Not from librdkafka's cooperative-sticky: it sends data of its own along with the
    # subscription, which the new protocol has no place for, and a group that does stays classic.
    [(OLD, NEW), (NEW, OLD), (NEW, OLD_COOPERATIVE)],
    ids=["range-new", "new-range", "new-cooperative"],
)
def test_members_are_replaced_one_by_one(
    group_servers: str,
    group_raw: RawConnection,
    make_group_topic: MakeTopic,
    group_id: str,
    before: dict[str, object],
    after: dict[str, object],
) -> None:
    topic = make_group_topic(PARTITIONS)
    keys = partitions_of(topic, PARTITIONS)
    spec = Spec("confluent", group_servers, group_id, (topic,))
    with Group(spec) as group, Load(group_servers, topic, PARTITIONS) as load:
        old = group.gather(keys, 2, **before)
        assert group_type(group_raw, group_id) == kind_of(before)
        for member in old:
            group.gather(keys, 1, **after)
            eventually(lambda: same_epoch(group_raw, group_id), "all are in the last epoch")
            member.stop()
            group.settle(keys, *(each for each in group.members if each.alive))
        assert group_type(group_raw, group_id) == kind_of(after)
        group.finish(load.stop(), once=True)


@pytest.mark.parametrize(("before", "after"), [(OLD, NEW), (NEW, OLD)], ids=["new", "old"])
def test_an_empty_group_takes_the_protocol_of_who_comes_next_and_keeps_its_offsets(
    group_servers: str,
    group_raw: RawConnection,
    make_group_topic: MakeTopic,
    group_id: str,
    before: dict[str, object],
    after: dict[str, object],
) -> None:
    topic = make_group_topic(2)
    keys = partitions_of(topic, 2)
    spec = Spec("confluent", group_servers, group_id, (topic,))
    with Group(spec) as group, Load(group_servers, topic, 2) as load:
        (first,) = group.gather(keys, 1, **before)
        first.wait_for(lambda member: bool(member.of_kind("committed")), "it commits")
        first.stop()
        group.gather(keys, 1, **after)
        assert group_type(group_raw, group_id) == kind_of(after)
        group.finish(load.stop(), once=True)


def same_epoch(raw: RawConnection, group: str) -> bool:
    """Return whether every member has reached the group's epoch, or the group is a classic one.

    A group that turns classic counts on from its epoch: a classic member that has not joined
    for it yet is then of a past generation, and loses what it has.
    """
    (found,) = raw.request("consumer_group_describe", 0, group_ids=[group]).groups
    return all(member.member_epoch == found.group_epoch for member in found.members)


def group_type(raw: RawConnection, group: str) -> str:
    answer = raw.request("list_groups", 5)
    return next(str(found.group_type).lower() for found in answer.groups if found.group_id == group)


def kind_of(way: dict[str, object]) -> str:
    return "classic" if way["protocol"] == "classic" else "consumer"
