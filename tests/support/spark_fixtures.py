"""The types of the fixtures in tests/spark/conftest.py."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

Headers: TypeAlias = Sequence[tuple[str, bytes | None]]


class MakeTopic(Protocol):
    """`topic(partitions, configs={...}, servers=...)` creates a topic and gives its name."""

    def __call__(
        self,
        partitions: int = 1,
        *,
        configs: dict[str, str] | None = None,
        servers: str | None = None,
        name: str | None = None,
    ) -> str: ...


class Produce(Protocol):
    """`produce(topic, n)` writes keys k0.. and values v0.., round robin over the partitions.

    `first` is the number of the first record, `partition` puts all in one partition,
    `key`, `value` and `timestamp_ms` are functions of the record's number.
    """

    def __call__(
        self,
        topic: str,
        n: int,
        *,
        first: int = 0,
        partition: int | None = None,
        key: Callable[[int], bytes | None] = ...,
        value: Callable[[int], bytes | None] = ...,
        timestamp_ms: Callable[[int], int] | None = None,
        headers: Headers | None = None,
        servers: str | None = None,
        settings: dict[str, str] | None = None,
    ) -> None: ...
