"""Where tables are: `parquet:PATH`, `delta:PATH`, `iceberg:CATALOG.NAMESPACE.TABLE`.

Whether a place on this machine can be written is asked of the file system without touching
anything; places with a scheme of their own (s3a://, hdfs://) are Spark's to know.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ottla_spark.pipelines.spec.problems import closest
from ottla_spark.pipelines.spec.yaml_tree import Scalar

TABLE_FORMATS: Final = ("parquet", "delta", "iceberg")


@dataclass(frozen=True)
class TablePlace:
    """A table: its format, and its path or dotted name as Spark or a catalog knows it."""

    format: str
    where: str
    written: Scalar

    @property
    def is_path(self) -> bool:
        """Whether the table is a directory."""
        return self.format != "iceberg"


def parse_place(written: Scalar, file: Path) -> TablePlace | str:
    """The table that a text means, or what is wrong with the text."""
    kind, colon, where = written.text.partition(":")
    if not colon or kind not in TABLE_FORMATS:
        hint = closest(kind, TABLE_FORMATS)
        return (
            f"{written.text!r} should be parquet:PATH, delta:PATH"
            f" or iceberg:CATALOG.NAMESPACE.TABLE{hint}"
        )
    if not where.strip():
        return f"{written.text!r} names no table after {kind}:"
    if kind == "iceberg":
        if where.count(".") < 2 or not all(where.split(".")):
            return f"{written.text!r} should be iceberg:CATALOG.NAMESPACE.TABLE"
        return TablePlace(kind, where, written)
    return TablePlace(kind, beside(file, where), written)


def beside(file: Path, path: str) -> str:
    """A path of the file as the machine knows it: relative ones begin where the file is."""
    return path if "://" in path else str(file.parent / path.removeprefix("file:"))


def why_unwritable(path: str) -> str | None:
    """Why a directory cannot be written or made; None when it can, or when nobody here knows."""
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
    """Why there is nothing to read at a path; None when there is, or when nobody here knows."""
    if "://" in path or any(letter in path for letter in "*?[{"):
        return None
    try:
        if not Path(path).exists():
            return f"there is nothing at {path}"
        readable = os.access(path, os.R_OK)
    except (OSError, ValueError) as error:
        return str(error)
    return None if readable else f"{path} cannot be read by this user"
