"""Counters on a whole node in memory."""

from __future__ import annotations

import pytest

from tests.support.counter_shard import Counters


@pytest.fixture
def counters() -> Counters:
    return Counters()
