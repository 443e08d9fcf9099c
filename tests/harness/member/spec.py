"""What a member is told to do."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Self


@dataclass(frozen=True)
class Spec:
    """A member: which client library, which group and protocol, which topics.

    It commits after it has processed what one poll gave, and once more before it gives
    partitions up; `commits` false leaves that to the library's automatic commits.
    """

    client: str
    bootstrap_servers: str
    group: str
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    protocol: str = "classic"
    assignor: str | None = None
    instance_id: str | None = None
    session_timeout_ms: int = 3000
    heartbeat_interval_ms: int = 150
    max_poll_interval_ms: int = 20_000
    batch: int = 50
    work_ms: int = 0
    commits: bool = True
    client_id: str = "member"

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        fields = json.loads(text)
        return cls(**{**fields, "topics": tuple(fields["topics"])})
