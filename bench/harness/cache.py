"""The cache for downloaded and compiled files."""

from __future__ import annotations

import os
from pathlib import Path


def cache_directory() -> Path:
    """Return the cache directory. Create it if it does not exist."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    directory = base / "ottla-bench"
    directory.mkdir(parents=True, exist_ok=True)
    return directory
