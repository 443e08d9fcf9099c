"""The consumer group that a stream commits its offsets to: options `groupId`, `groupIdPrefix`.

By default the group is `<groupIdPrefix>-<query name>`, or `<groupIdPrefix>-<query id>` if the
query has no name. The prefix keeps these groups apart from groups of consumers. `groupId` (or
`kafka.group.id`) sets the whole name. `groupId` `none`, or empty, turns commits off.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

DEFAULT_PREFIX = "spark"
_OFF = ("", "none")


@dataclass(frozen=True)
class CommitGroup:
    """Whether to commit, and to which group. Without `group_id` the query's name decides."""

    enabled: bool
    group_id: str | None
    prefix: str

    def group_of(self, query_name: str) -> str:
        """Return the group of the query with this name (or id)."""
        return self.group_id or f"{self.prefix}-{query_name}"


def commit_group(options: Mapping[str, str], kafka_group_id: str | None) -> CommitGroup:
    """Return the group that the options select. `groupId` wins over `kafka.group.id`."""
    prefix = options.get("groupIdPrefix", DEFAULT_PREFIX)
    text = options.get("groupId")
    if text is None:
        return CommitGroup(True, kafka_group_id or None, prefix)
    named = text.strip()
    if named.lower() in _OFF:
        return CommitGroup(False, None, prefix)
    return CommitGroup(True, named, prefix)
