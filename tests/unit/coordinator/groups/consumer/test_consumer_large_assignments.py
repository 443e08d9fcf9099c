"""The assignment of many partitions makes few calls for each: it is made at once, on the loop."""

from __future__ import annotations

import pytest

from ottla.coordinator.groups.consumer.assignors import MemberSpec
from ottla.coordinator.groups.consumer.uniform_assignor import assign_alike
from tests.support.request_cost import count_calls

TOPICS = {bytes([number]) * 16: 2000 for number in range(1, 6)}
PARTITIONS = sum(TOPICS.values())


@pytest.mark.parametrize("members", [1, 3, 100])
def test_many_partitions_are_dealt_out(members: int) -> None:
    specs = [MemberSpec(f"m{number}", None, frozenset(TOPICS), {}) for number in range(members)]
    assigned = {}

    def assign() -> None:
        assigned.update(assign_alike(specs, TOPICS))

    assert count_calls(assign) < PARTITIONS // 2
    sizes = [sum(map(len, topics.values())) for topics in assigned.values()]
    assert max(sizes) - min(sizes) <= 1
    for topic_id, count in TOPICS.items():
        parts = [topics.get(topic_id, frozenset()) for topics in assigned.values()]
        assert sorted(number for part in parts for number in part) == list(range(count))
        assert max(map(len, parts)) - min(map(len, parts)) <= 1
