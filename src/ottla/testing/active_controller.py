"""Finds the active controller of a test's cluster: only that one describes the quorum."""

from __future__ import annotations

import time
from collections.abc import Sequence

from ottla.client.address import parse_addresses
from ottla.client.connection import Connection
from ottla.client.deadline import Deadline
from ottla.client.errors import ClientError
from ottla.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    RequestPartitionData,
    RequestTopicData,
)

_METADATA_TOPIC = "__cluster_metadata"
_TIMEOUT_MS = 30_000
_PAUSE_S = 0.01


def active_controller(addresses: Sequence[str]) -> int:
    """Return the id of the active controller; ask the controllers until there is one."""
    deadline = Deadline(_TIMEOUT_MS, "looking for the active controller")
    while True:
        for address in addresses:
            found = _leader(address, deadline.at_most(1_000))
            if found is not None:
                return found
        time.sleep(min(_PAUSE_S, deadline.remaining_s()))


def _leader(address: str, deadline: Deadline) -> int | None:
    request = DescribeQuorumRequest(
        topics=[RequestTopicData(topic_name=_METADATA_TOPIC, partitions=[RequestPartitionData()])]
    )
    try:
        connection = Connection(parse_addresses(address)[0], "ottla-testing", deadline)
        try:
            connection.send(request, deadline)
            response = connection.receive(DescribeQuorumResponse, deadline)
        finally:
            connection.close()
    except ClientError:
        return None
    if response.error_code:
        return None
    return response.topics[0].partitions[0].leader_id
