"""Broker settings of the network: listeners, sockets, connections and the size of requests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import cast

from ottla.config.component import Component, setting
from ottla.config.definition import (
    CLUSTER_WIDE,
    MAX_INT,
    AtLeast,
    ConfigError,
    OneOf,
    Values,
    split_list,
)
from ottla.config.listeners import (
    DEFAULT_PROTOCOL_MAP,
    SECURITY_PROTOCOLS,
    Endpoint,
    advertised,
    bound,
    inter_broker_name,
    of_controllers,
)


def _per_ip_overrides(values: Values) -> Mapping[str, int]:
    overrides: dict[str, int] = {}
    for entry in split_list(cast(str, values["max.connections.per.ip.overrides"])):
        host, colon, limit = entry.rpartition(":")
        if not (host and colon and limit.isascii() and limit.isdigit()):
            raise ConfigError(
                f"Invalid entry {entry!r} in max.connections.per.ip.overrides: write it as"
                " host:limit"
            )
        overrides[host.strip("[]")] = int(limit)
    return overrides


class NetworkConfig(Component):
    """Where clients connect, and the limits of connections and requests.

    `listeners` does not contain the listeners of controllers. Hosts may be "" and ports 0: the
    server replaces them with the bound address.
    """

    listeners: tuple[Endpoint, ...] = setting(
        "listeners",
        "list",
        default=("PLAINTEXT://:9092",),
        doc=(
            "The addresses to bind, as NAME://host:port. An empty host means all interfaces, and"
            " port 0 means any free port. An IPv6 address needs brackets."
        ),
        importance="high",
        resolve=bound,
    )
    advertised_listeners: tuple[Endpoint, ...] = setting(
        "advertised.listeners",
        "list",
        default=None,
        doc="The addresses for clients to connect to, if they differ from listeners.",
        importance="high",
        resolve=advertised,
    )
    listener_security_protocol_map: str = setting(
        "listener.security.protocol.map",
        "string",
        default=DEFAULT_PROTOCOL_MAP,
        doc=(
            "The security protocol of each listener name. Only PLAINTEXT listeners are supported;"
            " others are refused."
        ),
        importance="low",
    )
    controller_listener_names: tuple[Endpoint, ...] = setting(
        "controller.listener.names",
        "list",
        default=None,
        doc=(
            "The names of the listeners on which controllers are reached. A node that is a"
            " cluster of its own does not bind them."
        ),
        importance="high",
        resolve=of_controllers,
    )
    inter_broker_listener_name: str = setting(
        "inter.broker.listener.name",
        "string",
        default=None,
        doc="The listener for connections between brokers. It must be an advertised listener.",
        resolve=inter_broker_name,
    )
    security_inter_broker_protocol: str = setting(
        "security.inter.broker.protocol",
        "string",
        default="PLAINTEXT",
        validator=OneOf(SECURITY_PROTOCOLS),
        doc="Selects the inter-broker listener if inter.broker.listener.name is not set.",
    )
    socket_send_buffer_bytes: int = setting(
        "socket.send.buffer.bytes",
        "int",
        default=-1,
        validator=AtLeast(-1),
        doc=(
            "The send buffer of client sockets. -1 uses the default of the operating system."
            " Kafka's default is 102400, which costs a third of the throughput."
        ),
        importance="high",
    )
    socket_receive_buffer_bytes: int = setting(
        "socket.receive.buffer.bytes",
        "int",
        default=-1,
        validator=AtLeast(-1),
        doc=(
            "The receive buffer of client sockets. -1 uses the default of the operating system."
            " Kafka's default is 102400, which costs a third of the throughput."
        ),
        importance="high",
    )
    socket_request_max_bytes: int = setting(
        "socket.request.max.bytes",
        "int",
        default=100 * 1024 * 1024,
        validator=AtLeast(1),
        doc=(
            "The maximum size of a request. The broker closes a connection that sends a larger one."
        ),
        importance="high",
    )
    max_connections: int = setting(
        "max.connections",
        "int",
        default=MAX_INT,
        validator=AtLeast(0),
        doc="The maximum number of connections of the broker.",
        update=CLUSTER_WIDE,
    )
    max_connections_per_ip: int = setting(
        "max.connections.per.ip",
        "int",
        default=MAX_INT,
        validator=AtLeast(0),
        doc=(
            "The maximum number of connections from one address. 0 is allowed only with"
            " max.connections.per.ip.overrides."
        ),
        update=CLUSTER_WIDE,
    )
    max_connections_per_ip_overrides: Mapping[str, int] = setting(
        "max.connections.per.ip.overrides",
        "string",
        default="",
        doc="Limits for single addresses or host names, such as 127.0.0.1:200,client.example:100.",
        update=CLUSTER_WIDE,
        resolve=_per_ip_overrides,
    )
    connections_max_idle_ms: int = setting(
        "connections.max.idle.ms",
        "long",
        default=600000,
        doc=(
            "The broker closes a connection that sends no request for this long. Single bytes of a"
            " request do not count, every 64 KiB of a large one do. A negative value means never."
        ),
    )
    queued_max_request_bytes: int = setting(
        "queued.max.request.bytes",
        "long",
        default=-1,
        doc=(
            "The maximum memory of all requests that have arrived in part or wait their turn."
            " -1 means 512 MiB."
        ),
    )
    max_request_partition_size_limit: int = setting(
        "max.request.partition.size.limit",
        "int",
        default=2000,
        validator=AtLeast(1),
        doc="The maximum number of partitions in a DescribeTopicPartitions response.",
    )

    def check(self) -> Iterator[str]:
        if self.max_connections_per_ip == 0 and not self.max_connections_per_ip_overrides:
            yield (
                "max.connections.per.ip may be 0 only together with"
                " max.connections.per.ip.overrides"
            )
        if 0 < self.queued_max_request_bytes < self.socket_request_max_bytes:
            yield (
                f"queued.max.request.bytes ({self.queued_max_request_bytes}) must be at least"
                f" socket.request.max.bytes ({self.socket_request_max_bytes}), or -1"
            )
