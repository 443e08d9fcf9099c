"""Makes `log_support` importable by the property tests of the log."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "log"))
