"""The option --format: how record values are decoded."""

from __future__ import annotations

from enum import StrEnum

from ottla_spark.loads.errors import LoadUsageError


class ValueFormat(StrEnum):
    """The formats of values. RAW keeps them as bytes."""

    RAW = "raw"
    JSON = "json"
    AVRO = "avro"
    PROTOBUF = "protobuf"


def parse_format(text: str) -> ValueFormat:
    """Return the format that --format names."""
    if text not in set(ValueFormat):
        raise LoadUsageError(f"--format {text!r} should be one of {', '.join(ValueFormat)}")
    return ValueFormat(text)
