"""Which group a stream commits its offsets to: option `groupId`, on by default.

Unless told otherwise a query commits to the group `<groupIdPrefix>-<name of the query>`, or
to `<groupIdPrefix>-<id of the query>` when it has no name; the prefix keeps it apart from
groups of consumers. `groupId` (or `kafka.group.id`) names the group outright; `none` or
nothing turns commits off.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

DEFAULT_PREFIX = "spark"
_OFF = ("", "none")


@dataclass(frozen=True)
class GroupChoice:
    """Commits to `group_id`, or after the query's name with `prefix`, or not at all."""

    enabled: bool
    group_id: str | None
    prefix: str

    def group_of(self, query_name: str) -> str:
        """The group of a query with this name (or id)."""
        return self.group_id or f"{self.prefix}-{query_name}"


def group_choice(options: Mapping[str, str], kafka_group_id: str | None) -> GroupChoice:
    """What the options say; `groupId` wins over `kafka.group.id`."""
    prefix = options.get("groupIdPrefix", DEFAULT_PREFIX)
    text = options.get("groupId")
    if text is None:
        return GroupChoice(True, kafka_group_id or None, prefix)
    named = text.strip()
    if named.lower() in _OFF:
        return GroupChoice(False, None, prefix)
    return GroupChoice(True, named, prefix)
