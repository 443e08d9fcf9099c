"""The pytest plugin: `kafka_cluster`, `kafka_bootstrap_servers` and `kafka_topic`.

pytest loads this module at every start, so it imports nothing but pytest and the standard
library: the broker is imported when the first test asks for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

if TYPE_CHECKING:
    from ottla.testing.cluster import Cluster


@pytest.fixture(scope="session")
def kafka_cluster() -> Iterator[Cluster]:
    """Return a running cluster, one for the whole session. Use a topic for each test."""
    from ottla.testing.cluster import Cluster

    with Cluster() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def kafka_bootstrap_servers(kafka_cluster: Cluster) -> str:
    """Return `host:port` of the session's cluster."""
    return kafka_cluster.bootstrap_servers


@pytest.fixture
def kafka_topic(request: pytest.FixtureRequest) -> str:
    """A topic name no other test uses; the cluster creates the topic on first use."""
    test = "".join(c if c.isalnum() else "-" for c in request.node.name)[:60]
    return f"{test}-{uuid4().hex[:8]}"
