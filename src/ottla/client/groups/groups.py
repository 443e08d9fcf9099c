"""Groups of the classic and the new protocol (KIP-848): list, describe and delete.

Only the coordinator knows the type of a group. So `describe_groups` first asks for a group of
the new protocol and then for a classic one, as Kafka's admin client does.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ottla.client.cluster import Client
from ottla.client.connection import Connection
from ottla.client.deadline import Deadline
from ottla.client.errors import Refused, UnsupportedByBroker, check
from ottla.client.groups.coordinators import GroupCoordinator, by_coordinator, on_coordinator
from ottla.client.groups.members import (
    GroupDescription,
    classic_description,
    consumer_description,
)
from ottla.model.errors import ErrorCode
from ottla.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from ottla.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from ottla.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from ottla.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse

FIRST_LIST_VERSION_WITH_STATES = 4
FIRST_LIST_VERSION_WITH_TYPES = 5
_NOT_OF_THE_NEW_PROTOCOL = (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION)
_ADVICE = {
    ErrorCode.GROUP_ID_NOT_FOUND: "there is no such group; `ottla groups list` shows all groups",
    ErrorCode.NON_EMPTY_GROUP: "it has members; stop its consumers first",
}


class GroupListing(NamedTuple):
    """One group of a list. State and type are None if the broker is too old to return them."""

    group: str
    group_type: str | None
    protocol_type: str
    state: str | None
    coordinator: int


class GroupOutcome(NamedTuple):
    """The result for one group of a request."""

    group: str
    error: Refused | None


def list_groups(
    client: Client, *, states: Sequence[str] = (), types: Sequence[str] = ()
) -> list[GroupListing]:
    """Return the groups of all brokers, by name, filtered by states and types."""
    deadline = client.deadline("listing groups")
    request = ListGroupsRequest(states_filter=list(states), types_filter=list(types))

    def ask(node_id: int) -> list[GroupListing]:
        connection = client.node(node_id, deadline)
        version = connection.version_of(ListGroupsRequest)
        _require_filters(version, states, types)
        response = client.call(connection, request, ListGroupsResponse, deadline)
        check(response.error_code, f"the groups of broker {node_id}")
        return [_listing(found, version, node_id) for found in response.groups]

    def ask_all() -> list[GroupListing]:
        client.metadata([], deadline)
        found = [listing for node_id in client.brokers for listing in ask(node_id)]
        return sorted(found, key=lambda listing: (listing.group, listing.coordinator))

    return client.retry(ask_all, deadline, harmless_twice=True)


def describe_groups(client: Client, groups: Sequence[str]) -> list[GroupDescription]:
    """Return these groups with their members, in this order. Raise Refused if one is missing."""
    deadline = client.deadline("describing groups")

    def ask() -> list[GroupDescription]:
        found = {
            description.group: description
            for coordinator, wanted in by_coordinator(client, groups, deadline).items()
            for description in _describe(client, coordinator, wanted, deadline)
        }
        for group in groups:
            if group not in found:
                code = ErrorCode.GROUP_ID_NOT_FOUND
                raise Refused(code, f"group {group}", _advice(code))
        return [found[group] for group in groups]

    return client.retry(ask, deadline, harmless_twice=True) if groups else []


def delete_groups(client: Client, groups: Iterable[str]) -> list[GroupOutcome]:
    """Delete groups that have no members, with their offsets. Return a result for each."""
    return [GroupOutcome(group, _delete(client, group)) for group in groups]


def _delete(client: Client, group: str) -> Refused | None:
    deadline = client.deadline(f"deleting group {group}")
    request = DeleteGroupsRequest(groups_names=[group])

    def ask(connection: Connection) -> None:
        for result in client.call(connection, request, DeleteGroupsResponse, deadline).results:
            check(result.error_code, f"group {group}", _advice(result.error_code))

    try:
        on_coordinator(client, group, ask, deadline, harmless_twice=False)
    except Refused as error:
        return error
    return None


def _describe(
    client: Client, coordinator: GroupCoordinator, groups: Sequence[str], deadline: Deadline
) -> list[GroupDescription]:
    connection = client.node(coordinator.node_id, deadline)
    found: list[GroupDescription] = []
    if connection.supports(ConsumerGroupDescribeRequest):
        found = _describe_new(client, connection, coordinator, groups, deadline)
    known = {description.group for description in found}
    classic = [group for group in groups if group not in known]
    if classic:
        found += _describe_classic(client, connection, coordinator, classic, deadline)
    return found


def _describe_new(
    client: Client,
    connection: Connection,
    coordinator: GroupCoordinator,
    groups: Sequence[str],
    deadline: Deadline,
) -> list[GroupDescription]:
    request = ConsumerGroupDescribeRequest(group_ids=list(groups))
    response = client.call(connection, request, ConsumerGroupDescribeResponse, deadline)
    found = []
    for group in response.groups:
        if group.error_code not in _NOT_OF_THE_NEW_PROTOCOL:
            check(group.error_code, f"group {group.group_id}", group.error_message)
            found.append(consumer_description(group, coordinator))
    return found


def _describe_classic(
    client: Client,
    connection: Connection,
    coordinator: GroupCoordinator,
    groups: Sequence[str],
    deadline: Deadline,
) -> list[GroupDescription]:
    request = DescribeGroupsRequest(groups=list(groups))
    response = client.call(connection, request, DescribeGroupsResponse, deadline)
    found = []
    for group in response.groups:
        description = classic_description(group, coordinator)
        # Before version 6, a group that does not exist is returned as dead.
        if group.error_code == ErrorCode.GROUP_ID_NOT_FOUND or description.is_dead:
            continue
        check(group.error_code, f"group {group.group_id}", group.error_message)
        found.append(description)
    return found


def _listing(found: ListedGroup, version: int, node_id: int) -> GroupListing:
    state = found.group_state if version >= FIRST_LIST_VERSION_WITH_STATES else None
    kind = found.group_type.lower() if version >= FIRST_LIST_VERSION_WITH_TYPES else None
    return GroupListing(found.group_id, kind, found.protocol_type, state, node_id)


def _require_filters(version: int, states: Sequence[str], types: Sequence[str]) -> None:
    if states and version < FIRST_LIST_VERSION_WITH_STATES:
        raise UnsupportedByBroker(
            "this broker is older than Kafka 2.6 and cannot filter groups by state"
        )
    if types and version < FIRST_LIST_VERSION_WITH_TYPES:
        raise UnsupportedByBroker(
            "this broker is older than Kafka 3.8 and cannot filter groups by type"
        )


def _advice(code: int) -> str | None:
    return next((text for known, text in _ADVICE.items() if known == code), None)
