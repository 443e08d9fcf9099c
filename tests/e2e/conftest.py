"""Fixtures of the tests with real broker processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.harness.process import BrokerProcess


@pytest.fixture
def start_broker(tmp_path: Path) -> Iterator[Callable[..., BrokerProcess]]:
    """Start a broker process on `tmp_path/data` with these settings; stopped after the test."""
    with ExitStack() as stack:

        def start(settings: dict[str, str] | None = None, port: int = 0) -> BrokerProcess:
            broker = BrokerProcess(tmp_path / "data", settings=settings, port=port)
            return stack.enter_context(broker)

        yield start


@pytest.fixture
def broker(start_broker: Callable[..., BrokerProcess]) -> BrokerProcess:
    """Return a broker process with default settings."""
    return start_broker()
