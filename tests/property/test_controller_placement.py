"""Placement of replicas, for clusters of any shape."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.metadata.image import BrokerImage
from ottla.model.errors import ApiError, ErrorCode
from ottla.testing.fakes import FakeRandom
from tests.support.decisions import place


def drawn_random(data: st.DataObject) -> FakeRandom:
    """Return randomness whose numbers hypothesis chooses."""
    return FakeRandom(lambda limit: data.draw(st.integers(0, limit - 1)))


def broker(broker_id: int, rack: str | None, fenced: bool) -> BrokerImage:
    return BrokerImage(broker_id, 0, b"", (), rack, fenced)


@st.composite
def clusters(draw: st.DrawFn) -> list[BrokerImage]:
    ids = draw(st.lists(st.integers(0, 1000), min_size=1, max_size=9, unique=True))
    racks = st.sampled_from([None, "a", "b", "c"])
    return [broker(i, draw(racks), draw(st.booleans())) for i in ids]


@given(clusters(), st.integers(1, 9), st.integers(1, 60), st.data())
def test_replicas_are_spread(
    brokers: list[BrokerImage], replication_factor: int, count: int, data: st.DataObject
) -> None:
    active = {b.broker_id for b in brokers if b.active}
    if not active or replication_factor > len(brokers):
        with pytest.raises(ApiError) as caught:
            place(brokers, count, replication_factor, drawn_random(data))
        assert caught.value.code == ErrorCode.INVALID_REPLICATION_FACTOR
        return
    placed = place(brokers, count, replication_factor, drawn_random(data))
    assert len(placed) == count
    rack_of = {b.broker_id: b.rack for b in brokers}
    brokers_of = Counter(rack_of.values())
    for replicas in placed:
        assert len(set(replicas)) == len(replicas) == replication_factor
        assert replicas[0] in active
        # No rack has two replicas more than another that still has a broker to give.
        used = Counter(rack_of[i] for i in replicas)
        fewest = min(
            (used[rack] for rack, size in brokers_of.items() if used[rack] < size), default=None
        )
        if fewest is not None:
            assert max(used.values()) <= fewest + 1
    leaders = Counter(replicas[0] for replicas in placed)
    assert max(leaders.values()) - min(leaders[i] for i in active) <= 1


@given(st.integers(2, 7), st.data())
def test_followers_take_turns(size: int, data: st.DataObject) -> None:
    replication_factor = data.draw(st.integers(2, size))
    brokers = [broker(i, None, False) for i in range(size)]
    rounds = size - 1
    placed = place(brokers, size * rounds, replication_factor, drawn_random(data))
    held = Counter(i for replicas in placed for i in replicas)
    assert set(held.values()) == {rounds * replication_factor}
    if replication_factor == 2:
        # Every broker follows every other equally often: a failure spreads over all.
        assert set(Counter(placed).values()) <= {1, 2}
