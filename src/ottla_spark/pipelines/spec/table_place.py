"""The tables of a pipeline file, such as `parquet:PATH` or `iceberg:CATALOG.NAMESPACE.TABLE`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ottla_spark.loads.targets.registry import TARGETS, address_forms, target_of
from ottla_spark.loads.targets.target import Target
from ottla_spark.pipelines.spec.paths import beside
from ottla_spark.pipelines.spec.problems import closest
from ottla_spark.pipelines.spec.yaml_tree import Scalar


@dataclass(frozen=True)
class TablePlace:
    """A table: the scheme of its target, its location, and the text in the file."""

    scheme: str
    location: str
    written: Scalar

    @property
    def target(self) -> Target:
        """The kind of table."""
        return target_of(self.scheme)

    @property
    def is_path(self) -> bool:
        """True if the location is a directory."""
        return self.target.is_directory

    def catalog(self, catalogs: Mapping[str, Mapping[str, Scalar]]) -> dict[str, str]:
        """Return the properties that the file gives the table's catalog."""
        properties = catalogs.get(self.target.catalog_name(self.location) or "", {})
        return {name: value.text for name, value in properties.items()}


def parse_place(written: Scalar, file: Path) -> TablePlace | str:
    """Return the table that a text names, or a message about what is wrong with the text."""
    scheme, colon, rest = written.text.partition(":")
    if not colon or scheme not in TARGETS:
        return f"{written.text!r} should be {address_forms()}{closest(scheme, TARGETS)}"
    if not rest.strip():
        return f"{written.text!r} names no table after {scheme}:"
    target = target_of(scheme)
    location = target.parse_location(rest, lambda path: beside(file, path))
    if location is None:
        return f"{written.text!r} should be {target.form}"
    return TablePlace(scheme, location, written)
