"""Paths in a pipeline file.

The checks ask this machine's file system and change nothing. Paths with a scheme (s3a://,
hdfs://) are not checked here, because only Spark knows them.
"""

from __future__ import annotations

import os
from pathlib import Path


def beside(file: Path, path: str) -> str:
    """Return a path with relative ones resolved against the directory of the file."""
    return path if "://" in path else str(file.parent / path.removeprefix("file:"))


def why_unwritable(path: str) -> str | None:
    """Return why a directory cannot be written or created; None if it can, or if unknown."""
    if "://" in path:
        return None
    try:
        place = Path(path).absolute()
        existing = next(found for found in (place, *place.parents) if found.exists())
        if not existing.is_dir():
            return f"{existing} is a file, not a directory"
        writable = os.access(existing, os.W_OK | os.X_OK)
    except (OSError, ValueError) as error:
        return str(error)
    return None if writable else f"{existing} cannot be written by this user"


def why_unreadable(path: str) -> str | None:
    """Return why nothing can be read at a path; None if something can, or if unknown."""
    if "://" in path or any(letter in path for letter in "*?[{"):
        return None
    try:
        if not Path(path).exists():
            return f"{path} does not exist"
        readable = os.access(path, os.R_OK)
    except (OSError, ValueError) as error:
        return str(error)
    return None if readable else f"{path} cannot be read by this user"
