"""Subscriptions by regular expression: looked up by the client in the classic protocol, by the
broker in the new one.

Topics that come later, and match, are given to the group without anybody asking.
"""

from __future__ import annotations

from uuid import uuid4

import pytest

from tests.harness.group import Group, partitions_of
from tests.harness.member.spec import Spec
from tests.harness.topics import create_topic

WAYS = [
    ("confluent", "classic", "range"),
    ("kafka-python", "classic", "range"),
    ("aiokafka", "classic", "range"),
    ("confluent", "consumer", None),
]


@pytest.mark.slow
@pytest.mark.parametrize(("client", "protocol", "assignor"), WAYS)
def test_topics_that_match_are_given_also_when_they_come_later(
    group_servers: str, group_id: str, client: str, protocol: str, assignor: str | None
) -> None:
    family = f"p-{uuid4().hex[:8]}"
    one, other, later = f"{family}-a1", f"{family}-b1", f"{family}-a2"
    create_topic(group_servers, one, 2)
    create_topic(group_servers, other, 1)
    spec = Spec(
        client,
        group_servers,
        group_id,
        pattern=f"^{family}-a[0-9]+$",
        protocol=protocol,
        assignor=assignor,
    )
    with Group(spec) as group:
        group.gather(partitions_of(one, 2), 2)
        create_topic(group_servers, later, 2)
        group.settle(partitions_of(one, 2) | partitions_of(later, 2), *group.members)


def test_a_pattern_and_names_together_in_the_new_protocol(
    group_servers: str, group_id: str
) -> None:
    family = f"p-{uuid4().hex[:8]}"
    by_name, by_pattern = f"{family}-name", f"{family}-x"
    create_topic(group_servers, by_name, 1)
    create_topic(group_servers, by_pattern, 1)
    spec = Spec(
        "confluent",
        group_servers,
        group_id,
        (by_name,),
        pattern=f"^{family}-x$",
        protocol="consumer",
    )
    with Group(spec) as group:
        group.gather(partitions_of(by_name, 1) | partitions_of(by_pattern, 1), 1)
