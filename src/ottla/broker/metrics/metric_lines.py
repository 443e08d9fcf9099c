"""The lines of a metric in Prometheus' text format."""

from __future__ import annotations

from collections.abc import Iterator


def head(name: str, kind: str, text: str) -> Iterator[str]:
    """Yield the lines before the values of a metric: its description and its type."""
    yield f"# HELP {name} {text}"
    yield f"# TYPE {name} {kind}"


def metric(name: str, kind: str, text: str, value: int | str) -> Iterator[str]:
    """Yield all lines of a metric with one value."""
    yield from head(name, kind, text)
    yield f"{name} {value}"
