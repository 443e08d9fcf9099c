"""What a stream from topic to topic is to do."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class StreamSpec:
    """`shuffled` puts a shuffle by key between the topics. `slow_s` makes some tasks slow."""

    master: str
    servers: str
    source: str
    target: str
    group: str
    checkpoint: str
    events: str
    """A directory for Spark's event logs, which tell what tasks there were."""
    tasks: int
    shuffled: bool = False
    slow_s: float = 0.0
    a_batch: int = 200
    """About the most records of a micro-batch."""

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> StreamSpec:
        return cls(**json.loads(text))
