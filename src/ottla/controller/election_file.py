"""Reads `quorum-state`: the epoch of the quorum, its leader, and the vote this node gave."""

from __future__ import annotations

from ottla.log.log import Log
from ottla.metadata.serde import MetadataError
from ottla.ports import read_file
from ottla.raft.election import ElectionState
from ottla.raft.quorum_state_file import FILE_NAME, decode


def read_election(log: Log) -> ElectionState | None:
    """Return what the file says, None if there is none. Raise MetadataError if it is damaged."""
    path = log.path(FILE_NAME)
    try:
        content = read_file(log.resources.files, path)
    except FileNotFoundError:  # a new directory, or one of an older version
        return None
    try:
        return decode(content)
    except ValueError as error:
        raise MetadataError(f"{path} is damaged ({error}); restore it from a copy") from error
