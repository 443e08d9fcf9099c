"""What a member tells: one JSON object a line, each with the machine's monotonic time.

CLOCK_MONOTONIC is the same clock in all processes, so events of several members have an order.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Mapping
from typing import TypeAlias

Key: TypeAlias = tuple[str, int]


class Reporter:
    """Writes events to stdout, at once."""

    def started(self) -> None:
        self._tell("started")

    def assigned(self, partitions: Iterable[Key], generation: int) -> None:
        self._tell("assigned", partitions=sorted(partitions), generation=generation)

    def revoked(self, partitions: Iterable[Key], *, lost: bool) -> None:
        self._tell("revoked", partitions=sorted(partitions), lost=lost)

    def got(self, offsets: Mapping[Key, list[int]]) -> None:
        self._tell("got", offsets=[[*key, found] for key, found in offsets.items()])

    def committed(self, offsets: Mapping[Key, int]) -> None:
        self._tell("committed", offsets=[[*key, offset] for key, offset in offsets.items()])

    def failed(self, what: str, error: object) -> None:
        self._tell("failed", what=what, error=str(error), code=_code(error))

    def closed(self) -> None:
        self._tell("closed")

    def _tell(self, kind: str, **fields: object) -> None:
        line = json.dumps({"at": time.monotonic(), "kind": kind, **fields})
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def _code(error: object) -> int | None:
    """Return Kafka's error code in an error of any of the libraries."""
    inner = getattr(error, "args", (error,))
    for each in (error, *inner):
        code = getattr(each, "errno", None)
        if isinstance(code, int):
            return code
        code = getattr(each, "code", None)
        if callable(code):
            return int(code())
    return None
