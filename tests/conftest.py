"""Which broker the tests talk to: Ottla in this process, or OTTLA_TEST_BOOTSTRAP=host:port.

With the variable set, the same tests run against any Kafka, which shows that what they expect
is Kafka's behaviour; those that need Ottla, or to stop and start a broker, are then skipped.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from ottla.testing import Cluster

EXTERNAL_BOOTSTRAP = os.environ.get("OTTLA_TEST_BOOTSTRAP", "")
HERE = Path(__file__).parent
REAL_BROKER_TIMEOUT_S = 90

# A shell starts what it puts in the background deaf to Ctrl-C, and the tests' commands after it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# kafka-python 3.0 drops, without closing it, a socket whose connection was refused. It has no
# peer and no address yet, so a socket that was ever connected is still reported.
NEVER_CONNECTED = (
    r"unclosed <socket\.socket fd=\d+, family=2, type=1, proto=6, laddr=\('0\.0\.0\.0'"
)


# A busy machine may take any time for one example: what is wrong is found by its result.
settings.register_profile("ottla", deadline=None)
settings.load_profile("ottla")


def pytest_configure(config: pytest.Config) -> None:
    if os.environ.get("OTTLA_TEST_COMPILED"):
        from ottla.network import engine

        assert not engine.__file__.endswith(".py"), f"{engine.__file__} is not compiled"
    config.addinivalue_line("filterwarnings", f"ignore:{NEVER_CONNECTED}:ResourceWarning")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        kind = Path(item.path).relative_to(HERE).parts[0]
        if kind in {"interop", "e2e"}:
            item.add_marker(pytest.mark.timeout(REAL_BROKER_TIMEOUT_S))
        if kind == "e2e" and EXTERNAL_BOOTSTRAP:
            item.add_marker(pytest.mark.skip(reason="needs broker processes of its own"))


@pytest.fixture(scope="session")
def bootstrap_servers(request: pytest.FixtureRequest) -> str:
    """Return the broker most tests share."""
    if EXTERNAL_BOOTSTRAP:
        return EXTERNAL_BOOTSTRAP
    cluster: Cluster = request.getfixturevalue("kafka_cluster")
    return cluster.bootstrap_servers


@pytest.fixture
def start_cluster() -> Iterator[Callable[..., Cluster]]:
    """Start a cluster of the test's own, with settings; skipped where Ottla is not under test."""
    if EXTERNAL_BOOTSTRAP:
        pytest.skip("needs a broker of its own")
    from ottla.testing import Cluster

    with ExitStack() as stack:

        def start(
            properties: Mapping[str, str] | None = None,
            *,
            memory: bool = False,
            data_dir: Path | None = None,
        ) -> Cluster:
            cluster = Cluster(properties=properties, memory=memory, data_dir=data_dir)
            return stack.enter_context(cluster)

        yield start
