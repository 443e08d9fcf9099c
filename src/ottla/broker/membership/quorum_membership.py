"""Makes this node a member of its metadata quorum, as the settings say."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.broker.membership.quorum_auto_join import is_listed
from ottla.controller.metadata_log import MetadataLog
from ottla.controller.metadata_snapshots import MetadataSnapshots
from ottla.controller.quorum.member import QuorumMember
from ottla.controller.quorum.peers import QuorumPeers
from ottla.controller.quorum.quorum_bootstrap import QuorumBootstrap
from ottla.controller.quorum.requests_to_wire import RequestTranslator
from ottla.raft.config import QuorumConfig
from ottla.raft.effects import Peer
from ottla.raft.voters import Endpoint, ReplicaKey, Voter, VoterSet

if TYPE_CHECKING:
    from ottla.broker.node import Node

FIRST_ELECTION_MS = 100
"""Nodes of a cluster that start together elect a controller after about this time."""


def membership(
    node: Node, local: ReplicaKey
) -> Callable[[MetadataLog, MetadataSnapshots], QuorumMember]:
    """Return a function that makes this node a member of the quorum on its log."""
    config = node.config.quorum
    listeners = node.controller_endpoints
    name = listeners[0].listener if listeners else "CONTROLLER"
    timeouts = QuorumConfig(
        config.controller_quorum_election_timeout_ms,
        config.controller_quorum_election_backoff_max_ms,
        config.controller_quorum_fetch_timeout_ms,
        config.controller_quorum_request_timeout_ms,
        config.controller_quorum_retry_backoff_ms,
        fetch_max_bytes=config.controller_quorum_fetch_max_bytes,
        fetch_snapshot_max_bytes=config.controller_quorum_fetch_snapshot_max_bytes,
        first_election_ms=FIRST_ELECTION_MS,
    )
    static = VoterSet(
        Voter(ReplicaKey(each.node_id), (Endpoint(name, each.host, each.port),))
        for each in config.controller_quorum_voters
    )
    bootstrap = tuple(
        Peer(-2 - number, (Endpoint(name, server.host, server.port),))
        for number, server in enumerate(config.controller_quorum_bootstrap_servers)
    )

    other_clusters = _OtherClusters(node)

    def make(log: MetadataLog, snapshots: MetadataSnapshots) -> QuorumMember:
        peers = QuorumPeers(
            node.ports.network,
            RequestTranslator(node.controller.image.cluster_id, name),
            f"raft-client-{node.node_id}",
            name,
            config.controller_quorum_request_timeout_ms,
            other_clusters.found,
        )
        quorum_bootstrap = None
        if not static.voters and listeners and is_listed(node, first=True):
            clock_ms = node.clock.monotonic_ms
            quorum_bootstrap = QuorumBootstrap(
                local, bootstrap[1:], peers, node.timers, clock_ms, node.ports.report
            )
        return QuorumMember(
            log,
            snapshots,
            Voter(local, tuple(listeners)),
            timeouts,
            bootstrap,
            peers,
            node.timers,
            node.controller,
            node.controller.image.cluster_id,
            static,
            quorum_bootstrap,
        )

    return make


class _OtherClusters:
    """Controllers that answer, but belong to another cluster than this node."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._ids: set[int] = set()

    def found(self, peer_id: int, endpoint: Endpoint) -> None:
        """Report a controller once. Refuse to start if the majority is of another cluster."""
        node = self._node
        if peer_id in self._ids:
            return
        self._ids.add(peer_id)
        cluster_id = node.controller.image.cluster_id
        where = f"{endpoint.host}:{endpoint.port}"
        node.report(f"the controller at {where} is of another cluster than this node: {cluster_id}")
        if len(self._ids) > len(node.config.quorum.controller_quorum_voters) // 2:
            node.refuse(
                f"this node belongs to the cluster {cluster_id}, and the controllers, such as the"
                f" one at {where}, to another one: set their cluster.id, or use an empty directory"
            )
