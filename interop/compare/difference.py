"""Differences between two answers: where they are, and what each system said."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from compare.normalise import Plain, identity

MISSING = "<missing>"


class Difference(NamedTuple):
    """One place in the answer to one request at which the systems do not agree."""

    title: str
    path: str
    kafka: Plain
    ottla: Plain


def differences(title: str, kafka: Plain, ottla: Plain) -> list[Difference]:
    """Return the differences between two normalised answers to one request."""
    return [Difference(title, *found) for found in _compare("", kafka, ottla)]


def _compare(path: str, kafka: Plain, ottla: Plain) -> Iterator[tuple[str, Plain, Plain]]:
    if isinstance(kafka, dict) and isinstance(ottla, dict):
        for name in dict.fromkeys((*kafka, *ottla)):
            inner = f"{path}.{name}" if path else name
            yield from _compare(inner, kafka.get(name, MISSING), ottla.get(name, MISSING))
    elif isinstance(kafka, list) and isinstance(ottla, list):
        left, right = _keyed(kafka), _keyed(ottla)
        for key in dict.fromkeys((*left, *right)):
            yield from _compare(f"{path}[{key}]", left.get(key, MISSING), right.get(key, MISSING))
    elif kafka != ottla:
        yield path, kafka, ottla


def _keyed(items: list[Plain]) -> dict[str, Plain]:
    names = [identity(item) for item in items]
    if None not in names and len(set(names)) == len(names):
        return dict(zip(map(str, names), items, strict=True))
    return {str(number): item for number, item in enumerate(items)}
