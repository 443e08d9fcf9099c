"""Modules that a broker imports when it first needs them."""

from __future__ import annotations

import pkgutil
import subprocess
import sys
from importlib import import_module

import pytest

import ottla

BROKER = ["broker", "config", "controller", "coordinator", "log", "metadata", "model", "network"]
BROKER += ["raft", "records", "replication", "server", "tiered", "wire"]

LATE = (
    "cramjam",
    "ottla.broker.authorizer",
    "ottla.broker.quotas",
    "ottla.broker.remote_tier",
    "ottla.broker.transactions",
    "ottla.coordinator",
    "ottla.log.cleaner",
    "ottla.log.store.clean_shutdown",
    "ottla.network.peer",
    "ottla.network.request_handler",
    "ottla.records.compression",
    "ottla.tiered",
)


@pytest.mark.parametrize("package", BROKER)
def test_every_module_of_a_broker_can_be_imported(package: str) -> None:
    found = import_module(f"ottla.{package}")
    names = [module.name for module in pkgutil.walk_packages(found.__path__, f"{found.__name__}.")]
    assert names
    for name in names:
        assert import_module(name).__name__ == name


def test_a_broker_starts_without_what_it_may_never_need() -> None:
    code = "import sys, ottla.server.main; print('\\n'.join(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    imported = set(done.stdout.split())
    assert ottla.__name__ in imported
    assert imported.isdisjoint(LATE)
