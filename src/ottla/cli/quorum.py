"""`ottla quorum`: show the metadata quorum, and change its voters."""

from __future__ import annotations

import binascii
import time
from typing import Annotated

from cyclopts import App, Parameter

from ottla.cli.errors import OK, UsageError
from ottla.cli.options import BootstrapServer, CommandConfig, Json, connect
from ottla.cli.output import Column, JsonValue, print_json, print_table
from ottla.client.address import Address, parse_addresses
from ottla.client.errors import ClientError
from ottla.client.quorum import QuorumReplica, QuorumState, add_voter, describe_quorum, remove_voter
from ottla.model.ids import ZERO_UUID, uuid_from_text

quorum = App(name="quorum", help="Show the metadata quorum, or change its voters.")

NodeId = Annotated[int, Parameter(name="--node", help="The id of a controller.")]
DirectoryId = Annotated[
    str | None,
    Parameter(
        help="The directory.id in the meta.properties of the controller's metadata directory."
        " Needed only if the quorum knows several of this controller."
    ),
]
_UUID_BYTES = 16
_COLUMNS = [
    Column("node", True),
    Column("role"),
    Column("log end", True),
    Column("lag", True),
    Column("last fetch", True),
    Column("caught up", True),
    Column("endpoint"),
    Column("directory id", is_id=True, is_extra=True),
]


@quorum.command(sort_key=1)
def describe(
    *,
    json: Json = False,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
) -> int:
    """Show the leader, the voters, the observers, and up to which offset each has the metadata."""
    with connect(bootstrap_server, command_config) as client:
        found = describe_quorum(client)
    if json:
        print_json(_as_json(found))
        return OK
    voters = sum(each.is_voter for each in found.replicas)
    print(
        f"leader {found.leader_id}  epoch {found.leader_epoch}"
        f"  high watermark {found.high_watermark}  voters {voters}"
        f"  observers {len(found.replicas) - voters}"
    )
    now_ms = int(time.time() * 1000)
    end = max((each.log_end_offset for each in found.replicas), default=0)
    print_table(_COLUMNS, [_row(each, found, end, now_ms) for each in found.replicas])
    return OK


@quorum.command(sort_key=2)
def add(
    node: NodeId,
    *,
    directory_id: DirectoryId = None,
    endpoint: Annotated[
        str | None,
        Parameter(help="Where the controller listens: host:port. Default: as it has registered."),
    ] = None,
    listener: Annotated[
        str, Parameter(help="The name of the controller's listener.")
    ] = "CONTROLLER",
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
) -> int:
    """Let a controller vote. It must run, and follow the metadata as an observer."""
    address = None if endpoint is None else _address(endpoint)
    uuid = None if directory_id is None else _uuid(directory_id)
    with connect(bootstrap_server, command_config) as client:
        if uuid is None or address is None:
            found = _only_replica(describe_quorum(client), node, directory_id, is_voter=False)
            uuid = uuid or _uuid(found.directory_id or "")
            address = address or _registered_address(found)
        add_voter(client, node, uuid, listener, address)
    print(f"controller {node}: is a voter now")
    return OK


@quorum.command(sort_key=3)
def remove(
    node: NodeId,
    *,
    directory_id: DirectoryId = None,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
) -> int:
    """Take the vote from a controller. It goes on as an observer until it is stopped."""
    uuid = None if directory_id is None else _uuid(directory_id)
    with connect(bootstrap_server, command_config) as client:
        if uuid is None:
            found = _only_replica(describe_quorum(client), node, None, is_voter=True)
            uuid = uuid_from_text(found.directory_id) if found.directory_id else ZERO_UUID
        remove_voter(client, node, uuid)
    print(f"controller {node}: is no voter any more")
    return OK


def _only_replica(
    state: QuorumState, node_id: int, directory_id: str | None, *, is_voter: bool
) -> QuorumReplica:
    """Return the voter or observer with an id. Raise ClientError if there is not just one."""
    found = [each for each in state.replicas if each.node_id == node_id]
    matching = [
        each
        for each in found
        if each.is_voter == is_voter and directory_id in (None, each.directory_id)
    ]
    if len(matching) == 1:
        return matching[0]
    if matching:
        ids = ", ".join(each.directory_id or "-" for each in matching)
        raise ClientError(
            f"controller {node_id} has been seen with several directories: {ids}."
            " Say which one with --directory-id"
        )
    if found:
        raise ClientError(
            f"controller {node_id} is {'no voter' if is_voter else 'a voter already'}"
        )
    raise ClientError(f"no node with the id {node_id} follows the metadata")


def _registered_address(replica: QuorumReplica) -> Address:
    if not replica.endpoints:
        raise ClientError(
            f"node {replica.node_id} has not registered as a controller;"
            " if it is one, say where it listens with --endpoint"
        )
    return _address(replica.endpoints[0])


def _address(endpoint: str) -> Address:
    try:
        (address,) = parse_addresses(endpoint)
    except ValueError:
        raise UsageError(f"--endpoint {endpoint!r} should be host:port") from None
    return address


def _uuid(text: str) -> bytes:
    try:
        uuid = uuid_from_text(text)
    except (ValueError, binascii.Error):
        uuid = b""
    if len(uuid) != _UUID_BYTES:
        raise UsageError(f"--directory-id {text!r} should be 22 characters, as in meta.properties")
    return uuid


def _row(replica: QuorumReplica, state: QuorumState, end: int, now_ms: int) -> list[str]:
    return [
        str(replica.node_id),
        _role(replica, state),
        str(replica.log_end_offset),
        str(end - replica.log_end_offset),
        _ago(replica.last_fetch_ms, now_ms),
        _ago(replica.last_caught_up_ms, now_ms),
        ",".join(replica.endpoints) or "-",
        replica.directory_id or "-",
    ]


def _role(replica: QuorumReplica, state: QuorumState) -> str:
    if replica.node_id == state.leader_id:
        return "leader"
    return "follower" if replica.is_voter else "observer"


def _ago(time_ms: int | None, now_ms: int) -> str:
    return "-" if time_ms is None else f"{max(now_ms - time_ms, 0):,} ms ago"


def _as_json(state: QuorumState) -> JsonValue:
    return {
        "leader_id": state.leader_id,
        "leader_epoch": state.leader_epoch,
        "high_watermark": state.high_watermark,
        "replicas": [
            {
                "id": each.node_id,
                "role": _role(each, state),
                "voter": each.is_voter,
                "log_end_offset": each.log_end_offset,
                "last_fetch_ms": each.last_fetch_ms,
                "last_caught_up_ms": each.last_caught_up_ms,
                "endpoints": list(each.endpoints),
                "directory_id": each.directory_id,
            }
            for each in state.replicas
        ],
    }
