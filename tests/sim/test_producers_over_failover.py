"""Producers and logs over the loss of a leader: sequences go on, what was not committed goes."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.model.errors import ErrorCode
from ottla.records.record import build_batch
from ottla.sim.cluster import SimCluster
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.sim.test_membership import unfenced
from tests.sim.test_quorum_of_several import NODES
from tests.sim.test_replication import create, image, log_bytes, started

PRODUCER_ID = 1_000


def send(
    cluster: SimCluster, number: int, sequence: int, value: bytes, *, acks: int = -1
) -> tuple[int, int]:
    """Return the error and the base offset of an idempotent producer's batch."""
    batch = bytes(
        build_batch(
            [(None, value, 1_000, ())],
            producer_id=PRODUCER_ID,
            producer_epoch=0,
            base_sequence=sequence,
        )
    )
    data = PartitionProduceData(index=0, records=batch)
    topic = TopicProduceData(name="t", partition_data=[data])
    request = ProduceRequest(acks=acks, timeout=5_000, topic_data=[topic])
    response: Any = cluster.ask(number, request, 9)
    (partition,) = response.responses[0].partition_responses
    return int(partition.error_code), int(partition.base_offset)


def next_leader(cluster: SimCluster, others: list[int]) -> int:
    cluster.run_until(lambda: all(image(cluster, n, "t").leader in others for n in others))
    leader = image(cluster, others[0], "t").leader
    cluster.run_until(
        lambda: cluster.node(leader).topics.partition_named("t", 0).leader is not None
    )
    return leader


@pytest.mark.parametrize("seed", range(4))
def test_an_idempotent_producer_goes_on_at_the_new_leader(seed: int) -> None:
    cluster = started(seed)
    create(cluster, "t")
    first = image(cluster, 1, "t").leader
    for sequence in range(4):
        assert send(cluster, first, sequence, b"v") == (ErrorCode.NONE, sequence)
    cluster.kill(first)
    second = next_leader(cluster, [n for n in NODES if n != first])
    assert send(cluster, second, 3, b"v") == (ErrorCode.NONE, 3)  # sent again: it is there
    assert send(cluster, second, 4, b"v") == (ErrorCode.NONE, 4)
    assert send(cluster, second, 6, b"v")[0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    cluster.start(first)
    cluster.run_until(lambda: set(image(cluster, second, "t").isr) == set(NODES))
    cluster.kill(second)
    third = next_leader(cluster, [n for n in NODES if n != second])
    assert send(cluster, third, 4, b"v") == (ErrorCode.NONE, 4)
    assert send(cluster, third, 5, b"v") == (ErrorCode.NONE, 5)


@pytest.mark.parametrize("seed", range(4))
def test_a_leader_that_was_cut_off_drops_what_nobody_else_has(seed: int) -> None:
    cluster = started(seed)
    create(cluster, "t")
    first = image(cluster, 1, "t").leader
    assert send(cluster, first, 0, b"committed") == (ErrorCode.NONE, 0)
    others = [n for n in NODES if n != first]
    for other in others:
        cluster.cut(first, other)
    for sequence in (1, 2, 3):
        assert send(cluster, first, sequence, b"lost", acks=1) == (ErrorCode.NONE, sequence)
    second = next_leader(cluster, others)
    assert send(cluster, second, 1, b"kept") == (ErrorCode.NONE, 1)
    for other in others:
        cluster.heal(first, other)
    cluster.run_until(lambda: all(unfenced(cluster, n) == set(NODES) for n in NODES))
    cluster.run_until(lambda: set(image(cluster, second, "t").isr) == set(NODES))
    assert send(cluster, second, 2, b"more") == (ErrorCode.NONE, 2)
    expected = log_bytes(cluster, second, "t")
    assert (b"lost" in expected, b"kept" in expected) == (False, True)
    cluster.run_until(lambda: all(log_bytes(cluster, n, "t") == expected for n in NODES))
    log = cluster.node(first).topics.partition_named("t", 0).log
    assert log is not None
    assert log.log_end_offset == 3


@pytest.mark.parametrize("seed", range(4))
def test_a_leader_that_died_with_a_longer_log_truncates_when_it_is_back(seed: int) -> None:
    cluster = started(seed)
    create(cluster, "t")
    first = image(cluster, 1, "t").leader
    assert send(cluster, first, 0, b"committed") == (ErrorCode.NONE, 0)
    others = [n for n in NODES if n != first]
    for other in others:
        cluster.cut(first, other)
    assert send(cluster, first, 1, b"lost", acks=1) == (ErrorCode.NONE, 1)
    cluster.kill(first)
    second = next_leader(cluster, others)
    for other in others:
        cluster.heal(first, other)
    assert send(cluster, second, 1, b"kept") == (ErrorCode.NONE, 1)
    cluster.start(first)
    cluster.run_until(lambda: set(image(cluster, second, "t").isr) == set(NODES))
    assert send(cluster, second, 2, b"more") == (ErrorCode.NONE, 2)
    expected = log_bytes(cluster, second, "t")
    assert (b"lost" in expected, b"kept" in expected) == (False, True)
    cluster.run_until(lambda: all(log_bytes(cluster, n, "t") == expected for n in NODES))
    cluster.kill(second)
    third = next_leader(cluster, [n for n in NODES if n != second])
    assert send(cluster, third, 3, b"on") == (ErrorCode.NONE, 3)
