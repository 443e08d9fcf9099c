"""How a node joins a cluster of several when it starts.

A broker registers, and is ready when it is unfenced. A node that is only a controller registers,
too, and is ready when the quorum has a leader and that has its registration.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ottla.broker.controller_channel import ControllerChannel
from ottla.broker.membership.broker_connections import BrokerConnections
from ottla.broker.membership.controller_registration import ControllerRegistration
from ottla.broker.membership.directory_assignments import DirectoryAssignments
from ottla.broker.membership.lifecycle import BrokerLifecycle
from ottla.broker.membership.quorum_auto_join import QuorumAutoJoin, may_join
from ottla.broker.replicas.replica_fetchers import ReplicaFetchers
from ottla.controller.broker_membership import BrokerMembership
from ottla.controller.broker_probe import BrokerProbe
from ottla.controller.leader_balance import LeaderBalance
from ottla.raft.voters import ReplicaKey

if TYPE_CHECKING:
    from ottla.broker.node import Node

LEADER_CHECK_MS: Final = 10


def join(node: Node) -> None:
    """Make the parts of a node that a cluster of several needs, and begin to register."""
    node.channel = ControllerChannel(node)
    node.controller.on_leadership.append(node.channel.follow_leader)
    probe = BrokerProbe(node.ports.network, f"controller-{node.node_id}-probe")
    node.membership = BrokerMembership(
        node.controller,
        lambda: node.config,
        node.clock,
        node.timers,
        probe,
        node.hosted_logs.first_records,
    )
    LeaderBalance(node.controller, lambda: node.config, node.clock, node.timers)
    node.broker_connections = BrokerConnections(node.membership.connection_lost)
    if "controller" in node.config.node.process_roles:
        node.controller_registration = ControllerRegistration(node)
        member = node.controller.member
        if member is not None and may_join(node, member):
            directory_id = node.hosted_logs.identity.directory_ids[0]
            QuorumAutoJoin(node, ReplicaKey(node.node_id, directory_id))
    if "broker" in node.config.node.process_roles:
        node.lifecycle = BrokerLifecycle(node)
        node.directory_assignments = DirectoryAssignments(node)
        node.replica_fetchers = ReplicaFetchers(node)
        node.lifecycle.follow_controller()
        node.lifecycle.start()


def wait_for_leader(node: Node, ready: Callable[[], None]) -> None:
    """Call `ready` once a controller knows the leader of the quorum, and is registered."""
    member, registration = node.controller.member, node.controller_registration
    assert member is not None
    assert registration is not None
    if member.leader is not None and registration.is_settled:
        ready()
    else:
        node.timers.at(
            node.clock.monotonic_ms() + LEADER_CHECK_MS, lambda: wait_for_leader(node, ready)
        )
