"""What a running cluster says about itself: its controller, and partitions that are not in sync.

It uses Ottla's own client for both systems: one request on a plain socket, no background threads.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from harness.cluster import LOOPBACK, NODES
from harness.problem import BenchError
from ottla.client.address import Address
from ottla.client.cluster import Client
from ottla.client.errors import ClientError
from ottla.client.quorum import describe_quorum
from ottla.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)

POLL_S = 0.05
REQUEST_TIMEOUT_MS = 10_000


def client_of(ports: Sequence[int], timeout_ms: float = REQUEST_TIMEOUT_MS) -> Client:
    """Return a client that begins with these brokers."""
    addresses = [Address(LOOPBACK, port) for port in ports]
    return Client(addresses, client_id="bench", timeout_ms=timeout_ms)


def active_controller(ports: Sequence[int]) -> int:
    """Return the id of the node that leads the metadata quorum."""
    try:
        with client_of(ports) as client:
            return describe_quorum(client).leader_id
    except ClientError as error:
        raise BenchError(f"the quorum could not be described: {error}") from error


def await_brokers(ports: Sequence[int], timeout_s: float) -> None:
    """Wait until all nodes are brokers of the cluster. Some clients fail if they ask earlier."""
    deadline = time.monotonic() + timeout_s
    for port in ports:
        while time.monotonic() < deadline:
            try:
                with client_of([port]) as client:
                    client.metadata([], client.deadline("asking for brokers"))
                    if len(client.brokers) == NODES:
                        break
            except ClientError:
                pass
            time.sleep(POLL_S)
        else:
            raise BenchError(f"the nodes were no cluster within {timeout_s:.0f} s")


def await_in_sync(ports: Sequence[int], partitions: int, timeout_s: float) -> None:
    """Wait until this many partitions exist and all of them have all replicas in sync.

    It asks for one topic after the other, because an answer about thousands of partitions takes
    much of the time of client and broker.
    """
    deadline = time.monotonic() + timeout_s
    last = "no answer"
    while time.monotonic() < deadline:
        try:
            with client_of(ports) as client:
                behind = _partitions_behind(client, None)
                while time.monotonic() < deadline:
                    late = [topic for topic, count in behind.items() if count[1]]
                    found = sum(count[0] for count in behind.values())
                    if found >= partitions and not late:
                        return
                    last = f"{len(late)} topics have partitions that are behind, of {found}"
                    time.sleep(POLL_S)
                    behind.update(_partitions_behind(client, late[:1] or None))
        except ClientError as error:
            last = str(error)
        time.sleep(POLL_S)
    raise BenchError(f"the replicas were not in sync within {timeout_s:.0f} s: {last}")


def _partitions_behind(client: Client, topics: list[str] | None) -> dict[str, tuple[int, int]]:
    """Return how many partitions topics have, and how many of them miss a replica in the ISR."""
    deadline = client.deadline("asking for metadata")
    asked = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
    request = MetadataRequest(topics=asked, allow_auto_topic_creation=False)
    answer = client.call(client.any(deadline), request, MetadataResponse, deadline)
    return {
        topic.name or "": (
            len(topic.partitions),
            sum(len(each.isr_nodes) < NODES for each in topic.partitions),
        )
        for topic in answer.topics
    }
