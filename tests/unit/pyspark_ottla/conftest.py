"""Fixtures: scripted brokers and settings to read from them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ottla.client.settings import ClientSettings
from pyspark_ottla.options.read_settings import ReadSettings
from tests.support.scripted_broker import FakeBroker

ALL = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")


@pytest.fixture
def start_broker() -> Iterator[Callable[[], FakeBroker]]:
    """Return a function that starts a scripted broker. It is closed after the test."""
    brokers: list[FakeBroker] = []

    def start() -> FakeBroker:
        brokers.append(FakeBroker())
        return brokers[-1]

    yield start
    for broker in brokers:
        broker.close()


@pytest.fixture
def settings_for() -> Callable[..., ReadSettings]:
    """Return a function that makes settings for bootstrap servers, by default with all columns."""

    def make(
        bootstrap_servers: str, *, request_timeout_ms: int = 10_000, rack: str = "", **options: Any
    ) -> ReadSettings:
        client = ClientSettings(
            bootstrap_servers, client_rack=rack, request_timeout_ms=request_timeout_ms
        )
        return ReadSettings(client, **{"columns": ALL, **options})

    return make
