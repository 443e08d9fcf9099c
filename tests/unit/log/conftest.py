"""Makes `log_support` importable by the tests of the log."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
