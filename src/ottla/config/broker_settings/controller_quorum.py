"""Broker settings of the metadata quorum: its voters, and how long they wait for each other."""

from __future__ import annotations

from typing import NamedTuple, cast

from ottla.config.component import Component, setting
from ottla.config.definition import AtLeast, ConfigError, Values


class VoterAddress(NamedTuple):
    """A voter of a static quorum, and where it listens."""

    node_id: int
    host: str
    port: int


class ServerAddress(NamedTuple):
    """A server that may know the quorum's leader."""

    host: str
    port: int


def _voters(values: Values) -> tuple[VoterAddress, ...]:
    voters: list[VoterAddress] = []
    for entry in cast(tuple[str, ...], values["controller.quorum.voters"]):
        node_id, at, address = entry.partition("@")
        if not (at and node_id.isascii() and node_id.isdigit()):
            raise ConfigError(
                f"Invalid entry {entry!r} in controller.quorum.voters: write it as id@host:port"
            )
        voters.append(VoterAddress(int(node_id), *_address("controller.quorum.voters", address)))
    ids = [voter.node_id for voter in voters]
    if len(set(ids)) < len(ids):
        raise ConfigError("controller.quorum.voters names a node more than once")
    return tuple(voters)


def _bootstrap_servers(values: Values) -> tuple[ServerAddress, ...]:
    name = "controller.quorum.bootstrap.servers"
    return tuple(_address(name, entry) for entry in cast(tuple[str, ...], values[name]))


def _address(setting_name: str, text: str) -> ServerAddress:
    host, colon, port = text.rpartition(":")
    if not (host and colon and port.isascii() and port.isdigit() and int(port) <= 65535):
        raise ConfigError(f"Invalid address {text!r} in {setting_name}: write it as host:port")
    return ServerAddress(host.strip("[]"), int(port))


class ControllerQuorumConfig(Component):
    """Who votes, and the time limits of elections, fetches and requests between controllers."""

    controller_quorum_voters: tuple[VoterAddress, ...] = setting(
        "controller.quorum.voters",
        "list",
        default=(),
        doc=(
            "The controllers of a static quorum, as id@host:port. Without this setting and without"
            " controller.quorum.bootstrap.servers, this node is a cluster of its own."
        ),
        importance="high",
        resolve=_voters,
    )
    controller_quorum_bootstrap_servers: tuple[ServerAddress, ...] = setting(
        "controller.quorum.bootstrap.servers",
        "list",
        default=(),
        doc=(
            "Controllers to ask for the leader of the quorum, as host:port. If all of them are"
            " empty, the first one begins a new cluster, and the others join its voters."
        ),
        importance="high",
        resolve=_bootstrap_servers,
    )
    controller_quorum_auto_join_enable: bool = setting(
        "controller.quorum.auto.join.enable",
        "boolean",
        default=False,
        doc=(
            "A controller that is no voter becomes one by itself. The quorum must not be given by"
            " controller.quorum.voters."
        ),
    )
    controller_quorum_election_timeout_ms: int = setting(
        "controller.quorum.election.timeout.ms",
        "int",
        default=1000,
        validator=AtLeast(0),
        doc="How long a controller waits for votes, or without a leader, before an election.",
        importance="high",
    )
    controller_quorum_election_backoff_max_ms: int = setting(
        "controller.quorum.election.backoff.max.ms",
        "int",
        default=1000,
        validator=AtLeast(0),
        doc="The longest wait before a new election after one without a winner.",
        importance="high",
    )
    controller_quorum_fetch_timeout_ms: int = setting(
        "controller.quorum.fetch.timeout.ms",
        "int",
        default=2000,
        validator=AtLeast(0),
        doc=(
            "How long a controller waits for an answer of the leader before it stands for"
            " election, and how long a leader leads without fetches of a majority."
        ),
        importance="high",
    )
    controller_quorum_request_timeout_ms: int = setting(
        "controller.quorum.request.timeout.ms",
        "int",
        default=2000,
        validator=AtLeast(0),
        doc="How long a controller waits for the answer to a request to another one.",
    )
    controller_quorum_retry_backoff_ms: int = setting(
        "controller.quorum.retry.backoff.ms",
        "int",
        default=20,
        validator=AtLeast(0),
        doc="How long a controller waits before it asks another one again after a failure.",
        importance="low",
    )
    controller_quorum_fetch_max_bytes: int = setting(
        "controller.quorum.fetch.max.bytes",
        "int",
        default=1048576,
        validator=AtLeast(1),
        doc="How many bytes of the metadata log are fetched at a time.",
        importance="low",
    )
    controller_quorum_fetch_snapshot_max_bytes: int = setting(
        "controller.quorum.fetch.snapshot.max.bytes",
        "int",
        default=1048576,
        validator=AtLeast(1),
        doc="How many bytes of a metadata snapshot are fetched at a time.",
        importance="low",
    )
