"""Fixtures: scripted brokers (those of the tests of `client`) and settings to read from them."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from ottla.client.settings import ClientSettings
from pyspark_ottla.options.read_settings import ReadSettings

ALL = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")


def _load(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


scripted = _load("scripted_brokers", Path(__file__).parents[1] / "client" / "conftest.py")


@pytest.fixture
def start_broker() -> Iterator[Callable[[], Any]]:
    """Return a function that starts a scripted broker. It is closed after the test."""
    brokers: list[Any] = []

    def start() -> Any:
        brokers.append(scripted.FakeBroker())
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
