"""The address of a table as people write it: `parquet:PATH`, `iceberg:CATALOG.NAMESPACE.TABLE`."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from ottla_spark.loads.errors import LoadUsageError
from ottla_spark.loads.targets.registry import TARGETS, address_forms, target_of
from ottla_spark.loads.targets.target import Target

_SCHEME = re.compile(r"[a-z][a-z0-9+.-]+:/", re.IGNORECASE)


@dataclass(frozen=True)
class TableAddress:
    """A kind of table and its location: a path, a URI, or a dotted name."""

    scheme: str
    location: str

    def __str__(self) -> str:
        return f"{self.scheme}:{self.location}"

    @property
    def target(self) -> Target:
        """The kind of table."""
        return target_of(self.scheme)

    @property
    def name(self) -> str:
        """The last part of the location, for names that people read."""
        return self.target.table_name(self.location)


def parse_address(text: str) -> TableAddress:
    """Return the address that --to names. Relative paths start at the working directory."""
    scheme, _, rest = text.partition(":")
    if scheme not in TARGETS or not rest:
        raise LoadUsageError(f"--to {text!r} should be {address_forms()}")
    target = target_of(scheme)
    location = target.parse_location(rest, absolute)
    if location is None:
        raise LoadUsageError(f"--to {text!r} should be {target.form}")
    return TableAddress(scheme, location)


def absolute(place: str) -> str:
    """Return an absolute path. A URI stays as it is, without its last slash."""
    if _SCHEME.match(place):
        local = place.removeprefix("file://") if place.startswith("file:///") else None
        return place.rstrip("/") if local is None else os.path.abspath(local)
    return os.path.abspath(os.path.expanduser(place))
