"""A transaction coordinator in memory."""

from __future__ import annotations

import pytest

from tests.support.transaction_coordinator import Coordination


@pytest.fixture
def coordination() -> Coordination:
    return Coordination()
