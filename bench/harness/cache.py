"""Where what is fetched or compiled once is kept between runs."""

from __future__ import annotations

import os
from pathlib import Path


def cache_directory() -> Path:
    """The harness's cache directory, created if it is not there."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    directory = base / "ottla-bench"
    directory.mkdir(parents=True, exist_ok=True)
    return directory
