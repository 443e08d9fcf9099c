"""Each handler states its versions at the top of its file; the tables of what is served agree.

Schemas of a newer Kafka do not add versions by themselves: what is served stands in SERVED and
CONTROLLER_SERVED.
"""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from ottla.broker import controller_handlers, handlers
from ottla.broker.controller_handlers import CONTROLLER_SERVED
from ottla.broker.handlers import SERVED, Served
from ottla.wire.api_table import ApiKey

OWN = {key: served for key, served in CONTROLLER_SERVED.items() if served is not SERVED.get(key)}
SHARED = {"quorum_requests"}


def stated(module: str) -> tuple[int, int]:
    """Return the versions that a module's docstring names first."""
    doc = import_module(module).__doc__ or ""
    found = re.search(r"versions? (\d+)(?: (?:to|and) (\d+))?", doc)
    assert found is not None, module
    return int(found[1]), int(found[2] or found[1])


@pytest.mark.parametrize(
    ("package", "key", "served"),
    [
        *(("handlers", key, served) for key, served in SERVED.items()),
        *(("controller_handlers", key, served) for key, served in OWN.items()),
    ],
)
def test_a_handler_states_the_versions_that_are_served(
    package: str, key: int, served: Served
) -> None:
    module = f"ottla.broker.{package}.{ApiKey(key).name.lower()}"
    assert stated(module) == (served.oldest, served.newest)


@pytest.mark.parametrize(
    ("package", "served"), [(handlers, SERVED), (controller_handlers, OWN)], ids=["all", "own"]
)
def test_every_handler_is_served(package: ModuleType, served: dict[int, Served]) -> None:
    (folder,) = package.__path__
    files = {path.stem for path in Path(folder).glob("*.py")} - {"__init__"} - SHARED
    assert files == {ApiKey(key).name.lower() for key in served}
