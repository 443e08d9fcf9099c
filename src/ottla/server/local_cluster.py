"""The settings of brokers that are one cluster on this machine: `ottla up --brokers`, and tests.

The first three brokers are its controllers, too. Topics have three replicas unless they say
otherwise, and a write with acks=all needs two of them.
"""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator, Mapping, Sequence

from ottla.broker import identity
from ottla.config.listeners import Endpoint

LOOPBACK = "127.0.0.1"
MOST_CONTROLLERS = 3
MOST_REPLICAS = 3
CONTROLLER = "CONTROLLER"

PER_BROKER = frozenset(
    {
        "advertised.listeners",
        "broker.id",
        "controller.listener.names",
        "controller.quorum.bootstrap.servers",
        "controller.quorum.voters",
        "listeners",
        "log.dir",
        "log.dirs",
        "node.id",
        "process.roles",
    }
)
"""Settings that a cluster on one machine makes for each broker."""

_LOWEST_PORT, _HIGHEST_PORT = 20_000, 32_000


def new_cluster_id() -> str:
    """Return a new id for a cluster."""
    from ottla.server.clock_and_random import SystemRandom

    return identity.new_cluster_id(SystemRandom())


def free_ports(count: int) -> list[int]:
    """Return ports of 127.0.0.1 that nobody listens on.

    They are below the range from which systems take the ports of outgoing connections, so that
    none of those takes one before it is bound.
    """
    return [port for port, _ in zip(_free_ports(), range(count), strict=False)]


def _free_ports() -> Iterator[int]:
    tried: set[int] = set()
    while len(tried) < _HIGHEST_PORT - _LOWEST_PORT:
        port = random.randrange(_LOWEST_PORT, _HIGHEST_PORT)
        if port in tried:
            continue
        tried.add(port)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((LOOPBACK, port))
            except OSError:
                continue
        yield port
    raise OSError("all ports are in use")


def controllers_of(brokers: int) -> range:
    """Return the ids of the brokers that are controllers, too."""
    return range(1, min(brokers, MOST_CONTROLLERS) + 1)


def common_settings(
    brokers: int, cluster_id: str, controller_ports: Mapping[int, int]
) -> dict[str, str]:
    """Return the settings that all brokers of a cluster on this machine share.

    `controller_ports` says where the controllers are reached.
    """
    replicas = str(min(brokers, MOST_REPLICAS))
    voters = (f"{node_id}@{LOOPBACK}:{port}" for node_id, port in controller_ports.items())
    return {
        "cluster.id": cluster_id,
        "controller.listener.names": CONTROLLER,
        "controller.quorum.voters": ",".join(voters),
        "default.replication.factor": replicas,
        "min.insync.replicas": "2" if brokers >= MOST_REPLICAS else "1",
        "offsets.topic.replication.factor": replicas,
        "rlmm.config.remote.log.metadata.topic.replication.factor": replicas,
    }


def broker_settings(
    node_id: int, listeners: Sequence[Endpoint], controller_port: int | None, directory: str | None
) -> dict[str, str]:
    """Return the settings of one broker. It is a controller if it has a port for that."""
    endpoints = list(listeners)
    if controller_port is not None:
        endpoints.append(Endpoint(CONTROLLER, LOOPBACK, controller_port))
    settings = {
        "node.id": str(node_id),
        "process.roles": "broker" if controller_port is None else "broker,controller",
        "listeners": ",".join(str(endpoint) for endpoint in endpoints),
    }
    if directory is not None:
        settings["log.dirs"] = directory
    return settings


def machine_rack() -> str:
    """Return the name of this machine. It is the rack of its brokers."""
    return socket.gethostname()
