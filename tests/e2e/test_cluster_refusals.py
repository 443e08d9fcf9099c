"""Nodes that do not belong to a cluster are refused, with a message that says why."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.config.listeners import Endpoint
from ottla.server.errors import StartupError
from ottla.server.local_cluster import broker_settings, common_settings, free_ports
from ottla.server.runner import BrokerThread
from ottla.testing import Cluster

FAST = {"broker.session.timeout.ms": 1000, "broker.heartbeat.interval.ms": 200}


def test_a_new_node_of_a_cluster_needs_its_id(tmp_path: Path) -> None:
    client_port, *ports = free_ports(3)
    settings = common_settings(2, "", {1: ports[0], 2: ports[1]})
    del settings["cluster.id"]
    listener = Endpoint("PLAINTEXT", "127.0.0.1", client_port)
    settings |= broker_settings(1, [listener], ports[0], str(tmp_path / "data"))
    with pytest.raises(StartupError, match=r"set the same cluster\.id for all its nodes.*=.{22}$"):
        BrokerThread(settings).start()
    assert not (tmp_path / "data").exists()


class TwoClusters(Cluster):
    """A cluster whose nodes can be described with other settings."""

    def settings_of(self, n: int) -> dict[str, str]:
        return self._settings(n)


def test_a_node_of_another_cluster_is_refused() -> None:
    with TwoClusters(3, memory=True) as cluster:
        cluster.stop(3)
        stranger = cluster.settings_of(3) | {"cluster.id": "AAAAAAAAAAAAAAAAAAAAAA"}
        with pytest.raises(
            StartupError, match="belongs to the cluster AAAAAAAAAAAAAAAAAAAAAA, and"
        ):
            BrokerThread(stranger, memory=True).start()
        cluster.start(3)


def test_a_node_whose_id_is_taken_is_told_where_the_other_one_is() -> None:
    with TwoClusters(3, memory=True, properties=FAST) as cluster:
        taken_id = next(n for n in (1, 2, 3) if n != cluster.controller())
        first = cluster.settings_of(taken_id)
        (port,) = free_ports(1)
        second = first | {
            "listeners": f"INTERNAL://127.0.0.1:{port}",
            "advertised.listeners": f"INTERNAL://127.0.0.1:{port}",
            "process.roles": "broker",
        }
        taken = first["listeners"].split(",")[0].rpartition(":")[2]
        message = f"id {taken_id} is running at 127.0.0.1:{taken}"
        with pytest.raises(StartupError, match=message):
            BrokerThread(second, memory=True).start()


def test_a_controller_whose_id_is_taken_is_told_where_the_other_one_is() -> None:
    with TwoClusters(3, memory=True) as cluster:
        taken_id = next(n for n in (1, 2, 3) if n != cluster.controller())
        first = cluster.settings_of(taken_id)
        (port,) = free_ports(1)
        second = first | {
            "listeners": f"CONTROLLER://127.0.0.1:{port}",
            "process.roles": "controller",
        }
        second.pop("advertised.listeners", None)
        message = f"another controller with the id {taken_id} is running at 127.0.0.1:"
        with pytest.raises(StartupError, match=message):
            BrokerThread(second, memory=True).start()
