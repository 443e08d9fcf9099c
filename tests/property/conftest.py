"""Makes the support modules of the unit tests importable by the property tests."""

import sys
from pathlib import Path

for package in ("log", "coordinator", "raft"):
    sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / package))
