"""What a copier is to do, and how its process ends."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

STOPPED = 0
"""It was told to stop, and has ended its transaction."""

FENCED = 3
"""Another copier has its transactional id."""

FAILED = 4
"""It cannot know what became of its transaction. The next copier with its id finds out."""


@dataclass(frozen=True)
class CopierSpec:
    """`partition` is None for a member of the group that reads what it is assigned."""

    client: str
    servers: str
    source: str
    target: str
    group: str
    transactional_id: str
    partition: int | None
    group_protocol: str = "classic"
    transaction_timeout_ms: int = 60_000
    records: int = 10
    """The most records of a transaction."""
    pause_s: float = 0.05
    """The time between two transactions, so that the input lasts for long."""

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> CopierSpec:
        return cls(**json.loads(text))
