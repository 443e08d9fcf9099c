"""A broker whose metadata cannot be written ends: the others go on, and it can be started again."""

from __future__ import annotations

import pytest

from ottla.sim.disk.faults import UNLIMITED
from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tests.sim.test_membership import unfenced
from tests.sim.test_quorum_of_several import NODES, active
from tests.sim.test_replication import create, started


@pytest.mark.parametrize("failure", ["full", "broken"])
def test_a_broker_that_cannot_write_metadata_ends(failure: str) -> None:
    cluster = started(seed=1)
    leader = active(cluster)
    victim = next(number for number in NODES if number != leader)
    (volume,) = cluster.machine(victim).faults.volumes
    if failure == "full":
        volume.free_bytes = 0
    else:
        volume.eio_probability = 1.0
    assert leader is not None
    topic = CreatableTopic(name="u", num_partitions=1, replication_factor=1)
    cluster.ask(leader, CreateTopicsRequest(topics=[topic], timeout=10_000), 7)
    cluster.run_until(lambda: not cluster.is_running(victim))
    others = set(NODES) - {victim}
    cluster.run_until(lambda: all(unfenced(cluster, n) == others for n in others))
    volume.free_bytes, volume.eio_probability = UNLIMITED, 0.0
    cluster.start(victim)
    cluster.run_until(lambda: all(unfenced(cluster, n) == set(NODES) for n in NODES))
    create(cluster, "t")
