"""`ottla up --brokers`: a cluster on this machine, a process for each broker.

Each broker has a directory `broker-N` below the data directory. Its settings are made again at
every start, with other ports for the controllers: only the cluster id and the data must stay.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from ottla.cli.errors import complain
from ottla.cli.serve import (
    HIGHEST_PORT,
    LocalCluster,
    Serve,
    advertised,
    announce,
    announce_metrics,
    show_start,
)
from ottla.config.definition import ConfigError
from ottla.config.listeners import Endpoint
from ottla.log.file_names import META_PROPERTIES
from ottla.log.store.meta_properties import CorruptMetaProperties, decode_meta
from ottla.server import local_cluster
from ottla.server.errors import StartupError
from ottla.server.forked_brokers import BrokerStart, ForkedBrokers


def serve_cluster(request: Serve, cluster: LocalCluster, when_ready: Callable[[], None]) -> int:
    """Run the brokers until they are stopped and return the exit code."""
    starts = broker_starts(request, cluster)
    if request.verbose:
        for start in starts:
            show_start(start.properties, memory=request.memory)

    def ready(addresses: Sequence[str]) -> None:
        announce(",".join(addresses), request.memory, cluster.data_dir)
        when_ready()

    brokers = ForkedBrokers(ready, announce_metrics, complain)
    return brokers.run(starts)


def broker_starts(request: Serve, cluster: LocalCluster) -> list[BrokerStart]:
    """Return what to start. Raise ConfigError or StartupError if these brokers cannot be."""
    fixed = sorted(local_cluster.PER_BROKER & request.settings.keys())
    if fixed:
        raise ConfigError(f"{fixed[0]} differs from broker to broker: --brokers sets it")
    count = cluster.brokers
    if cluster.port and cluster.port + count - 1 > HIGHEST_PORT:
        raise ConfigError(f"there are no {count} ports from {cluster.port} on")
    cluster_id = local_cluster.new_cluster_id() if request.memory else _cluster_id(cluster)
    controllers = local_cluster.controllers_of(count)
    ports = dict(zip(controllers, local_cluster.free_ports(len(controllers)), strict=True))
    common = local_cluster.common_settings(count, cluster_id, ports)
    common |= {"broker.rack": local_cluster.machine_rack()} | request.settings
    return [
        BrokerStart(
            node_id,
            _own_settings(cluster, node_id, ports.get(node_id), request.memory) | common,
            request.memory,
            _later(request.metrics_port, node_id),
            count,
        )
        for node_id in range(1, count + 1)
    ]


def _own_settings(
    cluster: LocalCluster, node_id: int, controller_port: int | None, memory: bool
) -> dict[str, str]:
    port = _later(cluster.port, node_id) or 0
    directory = None if memory else str(_directory(cluster, node_id))
    listener = Endpoint("PLAINTEXT", cluster.host, port)
    settings = local_cluster.broker_settings(node_id, [listener], controller_port, directory)
    if cluster.advertise is not None:
        host, _, first = advertised(cluster.advertise, cluster.port).rpartition(":")
        settings["advertised.listeners"] = f"PLAINTEXT://{host}:{_later(int(first), node_id)}"
    return settings


def _later(port: int | None, node_id: int) -> int | None:
    """Return the port of a broker, if the first broker has this one. 0 chooses a free one."""
    return port + node_id - 1 if port else port


def _directory(cluster: LocalCluster, node_id: int) -> Path:
    return Path(cluster.data_dir) / f"broker-{node_id}"


def _cluster_id(cluster: LocalCluster) -> str:
    """Return the id of the cluster whose data is there, or a new one."""
    data_dir = Path(cluster.data_dir)
    if (data_dir / META_PROPERTIES).exists():
        raise StartupError(
            f"{data_dir} has the data of a single broker: start it without --brokers, or use"
            " another --data-dir"
        )
    stored = [
        int(path.parent.name.removeprefix("broker-"))
        for path in data_dir.glob(f"broker-*/{META_PROPERTIES}")
        if path.parent.name.removeprefix("broker-").isdigit()
    ]
    if max(stored, default=0) > cluster.brokers:
        raise StartupError(
            f"{data_dir} has the data of {max(stored)} brokers: start it with --brokers"
            f" {max(stored)}, or use another --data-dir"
        )
    for node_id in stored:
        path = _directory(cluster, node_id) / META_PROPERTIES
        try:
            return decode_meta(path.read_bytes()).cluster_id
        except CorruptMetaProperties as error:
            raise StartupError(f"{path} is damaged: {error}") from None
    return local_cluster.new_cluster_id()
