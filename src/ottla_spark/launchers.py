"""Writes small launcher scripts to the user's cache."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path


def launcher(
    kind: str, place: Path, text: str, environment: Mapping[str, str] | None = None
) -> Path:
    """Return a directory with the script `text` at `place`; write it once for each text.

    If the cache cannot be written, use a temporary directory.
    """
    variables = os.environ if environment is None else environment
    name = sha256(text.encode()).hexdigest()[:16]
    try:
        return _write(_cache(variables) / "ottla" / kind / name, place, text)
    except OSError:
        return _write(Path(tempfile.mkdtemp(prefix=f"ottla-{kind}-")), place, text)


def _cache(variables: Mapping[str, str]) -> Path:
    chosen = variables.get("XDG_CACHE_HOME")
    return Path(chosen) if chosen else Path.home() / ".cache"


def _write(directory: Path, place: Path, text: str) -> Path:
    script = directory / place
    if script.is_file() and script.read_text() == text and os.access(script, os.X_OK):
        return directory
    script.parent.mkdir(parents=True, exist_ok=True)
    fresh = script.with_name(f"{script.name}.{os.getpid()}")
    fresh.write_text(text)
    fresh.chmod(0o755)
    fresh.replace(script)  # atomic, because another process may start the script now
    return directory
