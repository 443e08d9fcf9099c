"""What a load looks at in a topic before Spark does: its ends, and a sample of its values."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla.admin.consuming import Consumer, start_offsets
from ottla.admin.offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from ottla.admin.route import find_route
from ottla.model.ids import ZERO_UUID

if TYPE_CHECKING:
    from ottla.admin.client import Client

SAMPLE_RECORDS = 2000
SAMPLE_BYTES = 16 << 20
PATIENCE_S = 10.0
POLL_MS = 200


@dataclass(frozen=True)
class Ends:
    """The first offset and the one after the last, of each partition; the topic's id as hex.

    The id is empty where the brokers give topics none.
    """

    earliest: dict[int, int]
    latest: dict[int, int]
    topic_id: str = ""

    @property
    def records(self) -> int:
        """How many offsets lie between."""
        return sum(end - self.earliest[partition] for partition, end in self.latest.items())


def topic_ends(client: Client, topic: str) -> Ends:
    """The ends of a topic now; Refused when there is no such topic."""
    deadline = client.deadline(f"finding the ends of {topic}")
    route = find_route(client, topic, deadline)
    partitions = list(route.leaders)
    return Ends(
        start_offsets(client, topic, partitions, EARLIEST_TIMESTAMP, deadline),
        start_offsets(client, topic, partitions, LATEST_TIMESTAMP, deadline),
        "" if route.topic_id == ZERO_UUID else route.topic_id.hex(),
    )


def sample(client: Client, topic: str, ends: Ends) -> list[bytes]:
    """Some values from the beginning and the end of each partition, none that is null."""
    busy = [p for p, end in ends.latest.items() if end > ends.earliest[p]]
    if not busy:
        return []
    each = max(1, SAMPLE_RECORDS // (2 * len(busy)))
    first = {p: ends.earliest[p] for p in busy}
    last = {p: max(ends.latest[p] - each, ends.earliest[p]) for p in busy}
    values = _read(client, topic, first, ends, each)
    return values + _read(client, topic, last, ends, each)


def _read(
    client: Client, topic: str, positions: dict[int, int], ends: Ends, each: int
) -> list[bytes]:
    """Up to so many values of each partition, within bounds of bytes and time."""
    consumer = Consumer(client, topic, positions, lambda *_: None)
    left = dict.fromkeys(positions, each)
    values: list[bytes] = []
    size = 0
    deadline = time.monotonic() + PATIENCE_S
    try:
        while left and size < SAMPLE_BYTES and time.monotonic() < deadline:
            for fetched in consumer.poll(POLL_MS):
                wanted = fetched.records[: left.get(fetched.partition, 0)]
                found = [bytes(r.value) for r in wanted if r.value is not None]
                values += found
                size += sum(map(len, found))
                room = left.pop(fetched.partition, 0) - len(wanted)
                if room > 0 and fetched.next_offset < ends.latest[fetched.partition]:
                    left[fetched.partition] = room
                else:
                    consumer.positions.pop(fetched.partition, None)
    finally:
        consumer.close()
    return values
