"""The ports of a test's cluster of several brokers, and the proxies between them.

Clients connect to the listener PLAINTEXT directly. Brokers reach each other on INTERNAL and
CONTROLLER, through proxies unless the test does without. All ports stay the same as long as the
cluster lives.
"""

from __future__ import annotations

from ottla.config.listeners import Endpoint
from ottla.server import local_cluster
from ottla.server.local_cluster import CONTROLLER, LOOPBACK
from ottla.testing.proxies import Proxies

_INTERNAL = "INTERNAL"


class ClusterNetwork:
    """Where the brokers of one cluster listen, and the settings that follow from it."""

    def __init__(self, brokers: int, *, proxied: bool) -> None:
        self.node_ids = range(1, brokers + 1)
        self.proxies = Proxies() if proxied else None
        controllers = local_cluster.controllers_of(brokers)
        ports = iter(local_cluster.free_ports(2 * brokers + len(controllers)))
        self._client_ports = {node_id: next(ports) for node_id in self.node_ids}
        self._bound = {(n, _INTERNAL): next(ports) for n in self.node_ids}
        self._bound |= {(n, CONTROLLER): next(ports) for n in controllers}
        self._reached = self._bound
        """The ports at which others reach a broker."""
        if self.proxies is not None:
            add = self.proxies.add
            self._reached = {key: add(key[0], port) for key, port in self._bound.items()}
        voters = {n: self._reached[n, CONTROLLER] for n in controllers}
        self._common = local_cluster.common_settings(
            brokers, local_cluster.new_cluster_id(), voters
        )
        if self.proxies is not None:
            self.proxies.start()

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all brokers."""
        return ",".join(f"{LOOPBACK}:{port}" for port in self._client_ports.values())

    def controller_address(self, node_id: int) -> str | None:
        """Return where a broker's controller listens, None if the broker is no controller."""
        port = self._bound.get((node_id, CONTROLLER))
        return None if port is None else f"{LOOPBACK}:{port}"

    def settings_of(self, node_id: int, directory: str | None) -> dict[str, str]:
        """Return the settings of one broker."""
        client = Endpoint("PLAINTEXT", LOOPBACK, self._client_ports[node_id])
        internal = Endpoint(_INTERNAL, LOOPBACK, self._bound[node_id, _INTERNAL])
        told = [client]
        for name in (_INTERNAL, CONTROLLER):
            if (node_id, name) in self._reached:
                told.append(Endpoint(name, LOOPBACK, self._reached[node_id, name]))
        controller_port = self._bound.get((node_id, CONTROLLER))
        own = local_cluster.broker_settings(node_id, [client, internal], controller_port, directory)
        return (
            self._common
            | own
            | {
                "advertised.listeners": ",".join(str(endpoint) for endpoint in told),
                "inter.broker.listener.name": _INTERNAL,
                "listener.security.protocol.map": ",".join(
                    f"{name}:PLAINTEXT" for name in ("PLAINTEXT", _INTERNAL, CONTROLLER)
                ),
            }
        )

    def close(self) -> None:
        """Close the proxies."""
        if self.proxies is not None:
            self.proxies.close()
