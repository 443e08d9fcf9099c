"""Who leads a partition after a change, and when a reassignment ends."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.controller.partition_change import (
    RECOVERING,
    Assignment,
    ChangeRules,
    Election,
    change_partition,
)
from ottla.metadata.image import PartitionImage
from ottla.metadata.records import PartitionChangeRecord

TOPIC = b"t" * 16


def partition(**fields: Any) -> PartitionImage:
    found = {"replicas": (1, 2, 3), "isr": (1, 2, 3), "leader": 1, **fields}
    return PartitionImage(0, leader_epoch=5, partition_epoch=7, **found)


def alive(*broker_ids: int, **more: Any) -> ChangeRules:
    return ChangeRules(lambda broker_id: broker_id in broker_ids, **more)


def shown(record: PartitionChangeRecord | None) -> dict[str, object]:
    """Return what a record changes."""
    assert record is not None
    found = {
        "leader": None if record.leader == -2 else record.leader,
        "recovery": None if record.leader_recovery_state < 0 else record.leader_recovery_state,
        "isr": record.isr,
        "replicas": record.replicas,
        "removing": record.removing_replicas,
        "adding": record.adding_replicas,
        "elr": record.eligible_leader_replicas,
        "last_known": record.last_known_elr,
    }
    return {name: value for name, value in found.items() if value is not None}


@pytest.mark.parametrize(
    ("rules", "isr", "expected"),
    [
        (alive(1, 2, 3), (1, 2), {"isr": [1, 2]}),
        (alive(2, 3), (2, 3), {"leader": 2, "isr": [2, 3]}),
        (alive(3), (2, 3), {"leader": 3, "isr": [2, 3]}),
        (alive(), (), {"leader": -1}),
        (alive(3, allows_unclean=True), (2,), {"leader": 3, "isr": [3], "recovery": RECOVERING}),
        (alive(3), (2,), {"leader": -1, "isr": [2]}),
    ],
)
def test_the_next_one_in_sync_leads(
    rules: ChangeRules, isr: tuple[int, ...], expected: dict[str, object]
) -> None:
    assert shown(change_partition(TOPIC, partition(), rules, isr=isr)) == expected


def test_nothing_changes() -> None:
    assert change_partition(TOPIC, partition(), alive(1, 2, 3)) is None
    assert change_partition(TOPIC, partition(), alive(1, 2, 3), election=Election.PREFERRED) is None


def test_the_preferred_replica_leads_if_it_is_in_sync() -> None:
    elsewhere = partition(leader=2)
    record = change_partition(TOPIC, elsewhere, alive(1, 2, 3), election=Election.PREFERRED)
    assert shown(record) == {"leader": 1}
    lagging = partition(leader=2, isr=(2, 3))
    for rules in (alive(1, 2, 3), alive(1, 2, 3, allows_unclean=True)):
        assert change_partition(TOPIC, lagging, rules, election=Election.PREFERRED) is None


def test_a_preferred_election_is_never_unclean() -> None:
    gone = partition(leader=-1, isr=(2,))
    rules = alive(1, 3, allows_unclean=True)
    assert change_partition(TOPIC, gone, rules, election=Election.PREFERRED) is None
    assert shown(change_partition(TOPIC, gone, rules))["leader"] == 1


# -- eligible leader replicas --------------------------------------------------------------


def elr(*broker_ids: int, **more: Any) -> ChangeRules:
    return alive(*broker_ids, has_elr=True, min_insync_replicas=2, **more)


def test_those_that_leave_a_small_isr_stay_eligible() -> None:
    record = change_partition(TOPIC, partition(isr=(1, 2)), elr(1, 3), isr=(1,))
    assert shown(record) == {"isr": [1], "elr": [2]}
    back = partition(isr=(1,), eligible_leader_replicas=(2,))
    assert shown(change_partition(TOPIC, back, elr(1, 2, 3), isr=(1, 3))) == {
        "isr": [1, 3],
        "elr": [],
    }


def test_an_empty_isr_remembers_the_last_leader() -> None:
    last = partition(isr=(1,), eligible_leader_replicas=(2,))
    record = change_partition(TOPIC, last, elr(3), isr=())
    assert shown(record) == {"leader": -1, "isr": [], "elr": [2, 1], "last_known": [1]}
    gone = partition(leader=-1, isr=(), eligible_leader_replicas=(2, 1), last_known_elr=(1,))
    record = change_partition(TOPIC, gone, elr(2, 3))
    assert shown(record) == {"leader": 2, "isr": [2], "elr": [1], "last_known": []}
    assert change_partition(TOPIC, gone, elr(3)) is None


def test_without_eligible_ones_the_last_leader_leads_again() -> None:
    gone = partition(leader=-1, isr=(), last_known_elr=(2,))
    assert change_partition(TOPIC, gone, elr(1, 3)) is None
    record = change_partition(TOPIC, gone, elr(1, 2, 3))
    assert shown(record) == {"leader": 2, "isr": [2], "recovery": RECOVERING, "last_known": []}


# -- reassignments ------------------------------------------------------------------------


def test_a_reassignment_adds_first() -> None:
    wanted = Assignment((4, 5, 1, 2, 3), (1, 2, 3), (4, 5))
    rules = alive(1, 2, 3, 4, 5, directory_of=lambda broker_id: bytes([broker_id]) * 16)
    placed = partition(directories=(b"a" * 16, b"b" * 16, b"c" * 16))
    record = change_partition(TOPIC, placed, rules, assignment=wanted)
    assert shown(record) == {
        "replicas": [4, 5, 1, 2, 3],
        "removing": [1, 2, 3],
        "adding": [4, 5],
    }
    assert record is not None
    assert record.directories == [
        bytes([4]) * 16,
        bytes([5]) * 16,
        b"a" * 16,
        b"b" * 16,
        b"c" * 16,
    ]


def test_it_ends_when_all_that_stay_are_in_sync() -> None:
    moving = partition(
        replicas=(4, 5, 1, 2, 3), removing_replicas=(1, 2, 3), adding_replicas=(4, 5)
    )
    rules = alive(1, 2, 3, 4, 5)
    record = change_partition(TOPIC, moving, rules, isr=(1, 2, 3, 4))
    assert shown(record) == {"isr": [1, 2, 3, 4]}
    record = change_partition(TOPIC, moving, rules, isr=(1, 2, 3, 4, 5))
    assert shown(record) == {
        "leader": 4,
        "isr": [4, 5],
        "replicas": [4, 5],
        "removing": [],
        "adding": [],
    }


def test_another_order_takes_effect_at_once() -> None:
    record = change_partition(
        TOPIC, partition(), alive(1, 2, 3), assignment=Assignment((3, 1, 2), (), ())
    )
    assert shown(record) == {"replicas": [3, 1, 2]}


def test_fewer_replicas_begin_a_new_leader_epoch() -> None:
    record = change_partition(
        TOPIC, partition(), alive(1, 2, 3), assignment=Assignment((1, 2, 3), (3,), ())
    )
    assert shown(record) == {"leader": 1, "isr": [1, 2], "replicas": [1, 2]}
