"""Broker settings of the node itself: its ids, its rack and its roles."""

from __future__ import annotations

from typing import cast

from ottla.config.component import Component, setting
from ottla.config.definition import AtLeast, ConfigError, OneOf, Values

_DEFAULT_NODE_ID = 1


def _node_id(values: Values) -> int:
    node_id, broker_id = cast(int | None, values["node.id"]), cast(int, values["broker.id"])
    if node_id is not None and broker_id not in (-1, node_id):
        raise ConfigError(f"node.id ({node_id}) and broker.id ({broker_id}) must be the same")
    if node_id is None:
        node_id = _DEFAULT_NODE_ID if broker_id == -1 else broker_id
    return node_id


def _roles(values: Values) -> tuple[str, ...]:
    # A file for Kafka with ZooKeeper has no roles. This node accepts it.
    return cast(tuple[str, ...], values["process.roles"]) or ("broker", "controller")


class NodeConfig(Component):
    """What this node is in its cluster."""

    node_id: int = setting(
        "node.id",
        "int",
        default=None,
        validator=AtLeast(0),
        doc="The id of this node in the cluster. If it is not set, broker.id is used, else 1.",
        importance="high",
        resolve=_node_id,
    )
    broker_id: int = setting(
        "broker.id",
        "int",
        default=-1,
        validator=AtLeast(-1),
        doc="The old name of node.id. -1 means not set.",
        importance="high",
    )
    cluster_id: str | None = setting(
        "cluster.id",
        "string",
        default=None,
        doc=(
            "The id of the cluster. Empty data directories get this id; others must have it. If it"
            " is not set, empty directories get a new id. In Kafka, the id is given when a"
            " directory is formatted."
        ),
        internal=True,
    )
    broker_rack: str | None = setting(
        "broker.rack",
        "string",
        default=None,
        doc=(
            "The rack or zone of this broker. Replicas are spread over racks, and clients see the"
            " rack."
        ),
    )
    process_roles: tuple[str, ...] = setting(
        "process.roles",
        "list",
        default=("broker", "controller"),
        validator=OneOf(("broker", "controller")),
        doc=(
            "The roles of this process: broker, controller, or both. A node that is a cluster of"
            " its own has both."
        ),
        importance="high",
        resolve=_roles,
    )
    authorizer_class_name: str = setting(
        "authorizer.class.name",
        "string",
        default="",
        validator=OneOf(("",)),
        doc=(
            "Must be empty. There is no authorizer yet, and ignoring this setting would leave the"
            " broker open."
        ),
        importance="low",
    )
