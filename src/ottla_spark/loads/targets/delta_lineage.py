"""Finds out whether a Delta table was restored to a version without the last batch of a load.

A restore is a new commit that brings back the files of an earlier version. The transaction
identifiers of the commits in between stay in the log. So the identifier alone does not tell
whether the table still has the rows; the history of commits does.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from deltalake import DeltaTable

NOTE: Final = "ottla"
"""The key of a load's note in the commits of a table."""
_RESTORE: Final = "RESTORE"
_FEW: Final = 1
_MANY: Final = 100


def lost_batch(table: DeltaTable, query_id: str) -> bool:
    """Return whether a restore has removed the last batch of this checkpoint.

    The last commit is looked at first, then more, because each one is a file to read.
    """
    for limit in (_FEW, _MANY, None):
        commits = table.history(limit)
        found = _find(commits, query_id)
        if found is not None or limit is None or len(commits) < limit:
            break
    if found is not None:
        return not found
    # The commit of the batch is so old that the log does not list it any more.
    return any(commit.get("operation") == _RESTORE for commit in commits)


def _find(commits: Iterable[Mapping[str, Any]], query_id: str) -> bool | None:
    """Return whether the table has the last commit of the checkpoint; None if it is not listed."""
    for commit, is_part in lineage(commits):
        if note_of(commit).get("query_id") == query_id:
            return is_part
    return None


def lineage(
    commits: Iterable[Mapping[str, Any]],
) -> Iterator[tuple[Mapping[str, Any], bool]]:
    """Yield each commit, newest first, and whether the table's current rows come from it.

    Commits between a restore and the version that it restored are not part of the table.
    """
    newest: int | None = None
    for commit in commits:
        is_part = newest is None or commit["version"] <= newest
        if is_part and commit.get("operation") == _RESTORE:
            newest = _restored_version(commit)
        yield commit, is_part


def note_of(commit: Mapping[str, Any]) -> dict[str, Any]:
    """Return the note that a load left in a commit; empty if there is none."""
    found = json.loads(commit.get(NOTE) or "{}")
    return found if isinstance(found, dict) else {}


def _restored_version(commit: Mapping[str, Any]) -> int:
    """Return the version that was restored; -1 if the commit names only a time."""
    version = str((commit.get("operationParameters") or {}).get("version"))
    return int(version) if version.isdigit() else -1
