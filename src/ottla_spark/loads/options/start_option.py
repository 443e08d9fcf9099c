"""The option --from: where the first run of a load starts."""

from __future__ import annotations

import json
from collections.abc import Collection
from datetime import UTC, datetime

from ottla_spark.loads.errors import LoadUsageError

_FORMS = (
    'earliest, latest, a time such as 2026-11-01T12:00:00Z, or offsets such as {"0": 100, "1": -2}'
    " (-2 is earliest, -1 latest)"
)


def start_options(text: str, topic: str) -> dict[str, str]:
    """Return the options of the data source for a start; raise LoadUsageError for another text.

    A time without a zone is UTC. Offsets are by partition, or by topic and partition.
    """
    if text in {"earliest", "latest"}:
        return {"startingOffsets": text}
    if text.lstrip().startswith("{"):
        return {"startingOffsets": json.dumps(_offsets(text, topic))}
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise LoadUsageError(f"--from {text!r} should be {_FORMS}") from None
    at_ms = int((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000)
    if at_ms < 0:
        raise LoadUsageError(f"--from {text!r} is before 1970")
    # A partition without a record at or after the time starts at its end.
    return {"startingTimestamp": str(at_ms), "startingOffsetsByTimestampStrategy": "latest"}


def check_start(text: str, topic: str, partitions: Collection[int]) -> None:
    """Raise LoadUsageError if offsets are not given for exactly the partitions of the topic."""
    if not text.lstrip().startswith("{"):
        return
    given = {int(partition) for partition in _offsets(text, topic)[topic]}
    unknown, missing = sorted(given - set(partitions)), sorted(set(partitions) - given)
    if unknown:
        raise LoadUsageError(
            f"--from {text!r}: {topic} has no partition {unknown[0]}; its last one is"
            f" {max(partitions)}"
        )
    if missing:
        raise LoadUsageError(
            f"--from {text!r} should name every partition of {topic}: {missing[0]} is missing"
            " (-2 is earliest, -1 latest)"
        )


def _offsets(text: str, topic: str) -> dict[str, dict[str, int]]:
    try:
        content = json.loads(text)
    except ValueError as error:
        raise LoadUsageError(f"--from is not JSON ({error}): it should be {_FORMS}") from None
    if isinstance(content.get(topic), dict):
        content = content[topic]
    for partition, offset in content.items():
        if not partition.isdigit() or type(offset) is not int or offset < -2:
            raise LoadUsageError(f"--from {text!r} should be {_FORMS}")
    return {topic: content}
