"""A broker in memory, for tests of groups."""

from __future__ import annotations

import pytest

from tests.support.consumer_groups import Broker


@pytest.fixture
def broker() -> Broker:
    return Broker()
