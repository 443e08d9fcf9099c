"""A vote survives a power failure, also the first one of a new node."""

from __future__ import annotations

import pytest

from ottla.raft.quorum_state_file import FILE_NAME, decode
from ottla.sim.cluster import SimCluster
from tests.sim.test_quorum_of_several import NODES, member

_PATH = f"/data/__cluster_metadata-0/{FILE_NAME}"


def voter(cluster: SimCluster) -> int | None:
    """Return a node whose vote is on disk, as it believes."""
    for number in NODES:
        content = cluster.machine(number).disk.peek(_PATH)
        has_voted = content is not None and decode(content).voted is not None
        if has_voted and not member(cluster, number).driver._is_persisting:
            return number
    return None


@pytest.mark.parametrize("seed", range(5))
def test_the_first_vote_survives_a_power_failure(seed: int) -> None:
    cluster = SimCluster(3, seed, are_one_cluster=True)
    cluster.run_until(lambda: voter(cluster) is not None)
    number = voter(cluster)
    assert number is not None
    disk = cluster.machine(number).disk
    before = disk.peek(_PATH)
    cluster.lose_power(number)
    assert disk.peek(_PATH) == before
