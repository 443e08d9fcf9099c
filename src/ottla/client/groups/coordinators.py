"""Finds the coordinators of groups and transactional ids, of many at once (KIP-699)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from ottla.client.address import Address
from ottla.client.cluster import Client
from ottla.client.connection import Connection
from ottla.client.deadline import Deadline
from ottla.client.errors import ProtocolViolation, check
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse

T = TypeVar("T")
GROUP = 0
TRANSACTION = 1
FIRST_BATCHED_VERSION = 4


class GroupCoordinator(NamedTuple):
    """The broker that coordinates a group, and its address."""

    node_id: int
    address: Address


def on_coordinator(
    client: Client,
    group: str,
    action: Callable[[Connection], T],
    deadline: Deadline,
    *,
    harmless_twice: bool,
    key_type: int = GROUP,
) -> T:
    """Run `action` with a connection to the group's coordinator. Each retry looks it up again."""

    def attempt() -> T:
        coordinator = find_coordinators(client, [group], deadline, key_type)[group]
        return action(client.node(coordinator.node_id, deadline))

    return client.retry(attempt, deadline, harmless_twice=harmless_twice)


def by_coordinator(
    client: Client, groups: Sequence[str], deadline: Deadline, key_type: int = GROUP
) -> dict[GroupCoordinator, list[str]]:
    """Return the groups by coordinator, or the transactional ids."""
    found: defaultdict[GroupCoordinator, list[str]] = defaultdict(list)
    for group, coordinator in find_coordinators(client, groups, deadline, key_type).items():
        found[coordinator].append(group)
    return dict(found)


def find_coordinators(
    client: Client, groups: Sequence[str], deadline: Deadline, key_type: int = GROUP
) -> dict[str, GroupCoordinator]:
    """Return the coordinator of each group or id. Wait if the cluster has none yet."""
    return client.retry(
        lambda: _find(client, groups, deadline, key_type), deadline, harmless_twice=True
    )


def _find(
    client: Client, groups: Sequence[str], deadline: Deadline, key_type: int
) -> dict[str, GroupCoordinator]:
    connection = client.any(deadline)
    if connection.version_of(FindCoordinatorRequest) < FIRST_BATCHED_VERSION:
        return {group: _find_one(client, connection, group, deadline, key_type) for group in groups}
    request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=list(groups))
    response = client.call(connection, request, FindCoordinatorResponse, deadline)
    found = {}
    for answer in response.coordinators:
        check(answer.error_code, f"the coordinator of group {answer.key}", answer.error_message)
        found[answer.key] = GroupCoordinator(answer.node_id, Address(answer.host, answer.port))
    if missing := set(groups) - found.keys():
        raise ProtocolViolation(f"the broker did not return the coordinator of {missing.pop()}")
    return found


def _find_one(
    client: Client, connection: Connection, group: str, deadline: Deadline, key_type: int
) -> GroupCoordinator:
    request = FindCoordinatorRequest(key_type=key_type, key=group)
    answer = client.call(connection, request, FindCoordinatorResponse, deadline)
    check(answer.error_code, f"the coordinator of group {group}", answer.error_message)
    return GroupCoordinator(answer.node_id, Address(answer.host, answer.port))
