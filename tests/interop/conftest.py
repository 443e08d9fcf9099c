"""Fixtures of the tests with real clients: a client library, a raw connection, fresh topics."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from uuid import uuid4

import pytest

from tests.harness.aio import Aio
from tests.harness.confluent import Confluent
from tests.harness.group_broker import GROUP_SETTINGS, await_coordinator
from tests.harness.kafkapython import KafkaPython
from tests.harness.model import Client
from tests.harness.process import BrokerProcess
from tests.harness.raw import RawConnection
from tests.harness.topics import create_topic

CLIENTS = {client.name: client for client in (Confluent(), KafkaPython(), Aio())}


@pytest.fixture(params=sorted(CLIENTS))
def client(request: pytest.FixtureRequest) -> Client:
    """Return each of the client libraries in turn."""
    return CLIENTS[request.param]


@pytest.fixture
def clients() -> list[Client]:
    """Return all client libraries at once."""
    return list(CLIENTS.values())


@pytest.fixture
def raw(bootstrap_servers: str) -> Iterator[RawConnection]:
    """Yield a connection on which a test says exactly what it sends."""
    with RawConnection(bootstrap_servers) as connection:
        yield connection


@pytest.fixture
def unused_name() -> str:
    """Return a topic name nobody has used."""
    return f"t-{uuid4().hex[:12]}"


@pytest.fixture
def make_topic(bootstrap_servers: str) -> Iterator[Callable[..., str]]:
    """Create a fresh topic: `make_topic(partitions, **{"config.name": "value"})`."""
    made: list[str] = []

    def make(partitions: int = 1, configs: dict[str, str] | None = None) -> str:
        name = f"t-{uuid4().hex[:12]}"
        create_topic(bootstrap_servers, name, partitions, configs or {})
        made.append(name)
        return name

    yield make
    with RawConnection(bootstrap_servers) as connection:
        connection.request("delete_topics", 5, topic_names=made, timeout=10_000)


@pytest.fixture
def topic(make_topic: Callable[..., str]) -> str:
    """Return a fresh topic of one partition with default settings."""
    return make_topic()


@pytest.fixture(scope="session")
def group_servers() -> Iterator[str]:
    """Yield the broker that tests of groups share: quick rebalances, short sessions."""
    if external := os.environ.get("OTTLA_TEST_BOOTSTRAP"):
        yield external
        return
    with BrokerProcess(None, settings=GROUP_SETTINGS) as broker:
        await_coordinator(broker.bootstrap_servers)
        yield broker.bootstrap_servers


@pytest.fixture
def group_raw(group_servers: str) -> Iterator[RawConnection]:
    """Yield a connection to that broker, which coordinates all groups."""
    with RawConnection(group_servers) as connection:
        yield connection


@pytest.fixture
def make_group_topic(group_servers: str) -> Callable[[int], str]:
    """Create a fresh topic there: `make_group_topic(partitions)`."""

    def make(partitions: int = 1) -> str:
        name = f"t-{uuid4().hex[:12]}"
        create_topic(group_servers, name, partitions)
        return name

    return make


@pytest.fixture
def group_id() -> str:
    """Return a group nobody has used."""
    return f"g-{uuid4().hex[:12]}"
