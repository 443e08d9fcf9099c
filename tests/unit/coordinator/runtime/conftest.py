"""Makes `counter_support` importable."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from counter_support import Counters


@pytest.fixture
def counters() -> Counters:
    return Counters()
