"""The pytest plugin: fixtures for clusters and topics, and the broker's messages on a failure.

pytest loads this module at every start, so it imports nothing but pytest and the standard
library: the broker is imported when the first test asks for it.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from ottla.testing.broker_log import BROKER_LOG

if TYPE_CHECKING:
    from ottla.testing.cluster import Cluster, PropertyValue

_COUNT_AT_START = pytest.StashKey[int]()
_STORAGES = ("disk", "memory")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the settings of pytest.ini or pyproject.toml."""
    parser.addini(
        "ottla_properties",
        "Kafka's broker settings for kafka_cluster, one name=value a line",
        type="linelist",
    )
    parser.addini("ottla_storage", "where kafka_cluster keeps data: disk or memory", default="disk")
    parser.addini("ottla_brokers", "the number of brokers of kafka_cluster", default="1")
    parser.addini(
        "ottla_processes",
        "true: each broker of kafka_cluster is a process, which can be killed and paused",
        type="bool",
        default=False,
    )


@pytest.fixture(scope="session")
def kafka_properties(pytestconfig: pytest.Config) -> dict[str, PropertyValue]:
    """Return the broker settings of `ottla_properties`. Override this fixture to use others."""
    properties: dict[str, PropertyValue] = {}
    for line in pytestconfig.getini("ottla_properties"):
        name, equals, value = line.partition("=")
        if not equals:
            raise pytest.UsageError(f"ottla_properties: {line!r} is not of the form name=value")
        properties[name.strip()] = value.strip()
    return properties


@pytest.fixture(scope="session")
def kafka_storage(pytestconfig: pytest.Config) -> str:
    """Return `ottla_storage`: "disk" or "memory". Override this fixture to choose another."""
    return str(pytestconfig.getini("ottla_storage"))


@pytest.fixture(scope="session")
def kafka_brokers(pytestconfig: pytest.Config) -> int:
    """Return `ottla_brokers`, the number of brokers. Override this fixture to choose another."""
    given = str(pytestconfig.getini("ottla_brokers"))
    if not given.isascii() or not given.isdigit() or int(given) < 1:
        raise pytest.UsageError(f"ottla_brokers is a number from 1 on, not {given!r}")
    return int(given)


@pytest.fixture(scope="session")
def kafka_cluster(
    kafka_properties: dict[str, PropertyValue],
    kafka_storage: str,
    kafka_brokers: int,
    pytestconfig: pytest.Config,
) -> Iterator[Cluster]:
    """Return a running cluster, one for the whole session. Use a topic for each test."""
    with _cluster(kafka_properties, kafka_storage, kafka_brokers, pytestconfig) as cluster:
        yield cluster


@pytest.fixture
def kafka_cluster_per_test(
    kafka_properties: dict[str, PropertyValue],
    kafka_storage: str,
    kafka_brokers: int,
    pytestconfig: pytest.Config,
) -> Iterator[Cluster]:
    """Return a running cluster that only this test uses: it may stop it, or list all topics."""
    with _cluster(kafka_properties, kafka_storage, kafka_brokers, pytestconfig) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def kafka_bootstrap_servers(kafka_cluster: Cluster) -> str:
    """Return `host:port` of the session's cluster, of each broker if there are several."""
    return kafka_cluster.bootstrap_servers


@pytest.fixture
def kafka_topic(request: pytest.FixtureRequest) -> str:
    """Return a topic name no other test uses; the cluster creates the topic on first use."""
    test = re.sub(r"[^a-zA-Z0-9]+", "-", request.node.name)[:60].strip("-")
    return f"{test or 'test'}-{uuid4().hex[:8]}"


def _cluster(
    properties: dict[str, PropertyValue], storage: str, brokers: int, config: pytest.Config
) -> Cluster:
    from ottla.testing.cluster import Cluster

    if storage not in _STORAGES:
        raise pytest.UsageError(f"ottla_storage is disk or memory, not {storage!r}")
    return Cluster(
        brokers,
        processes=bool(config.getini("ottla_processes")),
        memory=storage == "memory",
        properties=properties,
    )


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Remember how many messages the brokers had sent before this test."""
    item.stash[_COUNT_AT_START] = BROKER_LOG.count


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add what brokers in this process reported during a test to its report if it failed."""
    report = yield
    if report.failed and (messages := BROKER_LOG.since(item.stash.get(_COUNT_AT_START, 0))):
        report.sections.append(("Ottla broker log", "\n".join(messages)))
    return report
