"""Two processes with the id of one controller: the one that came later has to go."""

from __future__ import annotations

from ottla.broker.membership.controller_registration import ControllerRegistration
from ottla.sim.cluster import CONTROLLER_PORT, SimCluster, host_of
from ottla.wire.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)
from tests.sim.test_quorum_of_several import NODES
from tests.sim.test_replication import started

NODE = 3


def incarnation(cluster: SimCluster) -> bytes:
    known = cluster.node(1).image.controllers.get(NODE)
    return b"" if known is None else known.incarnation_id


def registered(seed: int) -> SimCluster:
    cluster = started(seed)
    for number in NODES:
        registration = cluster.node(number).controller_registration
        assert registration is not None
        cluster.run_until(lambda r=registration: r.is_settled)  # type: ignore[misc]
    return cluster


class Both(ControllerRegistration):
    """Two controllers with one id, which see the same metadata."""

    def __init__(self, first: ControllerRegistration, second: ControllerRegistration) -> None:
        self.both = first, second

    def metadata_changed(self) -> None:
        for each in self.both:
            each.metadata_changed()


def test_the_second_controller_with_an_id_is_told_where_the_first_one_is() -> None:
    cluster = registered(1)
    node = cluster.node(NODE)
    refusals: list[str] = []
    node.refuse = refusals.append
    first = node.controller_registration
    assert first is not None
    second = ControllerRegistration(node)
    node.controller_registration = Both(first, second)
    second.metadata_changed()
    while not refusals:
        assert not second.is_settled
        cluster.run_for(10)
    assert refusals == [
        f"another controller with the id {NODE} is running at {host_of(NODE)}:{CONTROLLER_PORT}:"
        " stop it, or give this one another node.id"
    ]
    node.controller_registration = first
    cluster.run_until(lambda: first.is_settled)
    cluster.run_for(10_000)
    assert len(refusals) == 1


def test_a_last_request_of_an_earlier_life_ends_nobody() -> None:
    cluster = registered(2)
    before = incarnation(cluster)
    cluster.kill(NODE)
    cluster.start(NODE)
    cluster.run_until(lambda: incarnation(cluster) not in (b"", before))
    node = cluster.node(NODE)
    refusals: list[str] = []
    node.refuse = refusals.append
    now = incarnation(cluster)
    late = ControllerRegistrationRequest(controller_id=NODE, incarnation_id=before)
    node.channel.send(late, 0, ControllerRegistrationResponse, lambda result: None, 1_000)
    cluster.run_until(lambda: incarnation(cluster) == before)
    cluster.run_until(lambda: incarnation(cluster) == now)
    cluster.run_for(10_000)
    assert incarnation(cluster) == now
    assert not refusals
