"""A broker in memory."""

from __future__ import annotations

import pytest

from tests.support.broker import Broker


@pytest.fixture
def broker() -> Broker:
    return Broker()
