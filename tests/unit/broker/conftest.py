"""Makes `broker_support` importable."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from broker_support import Broker


@pytest.fixture
def broker() -> Broker:
    return Broker()
