"""The cluster, node and directory ids in the broker's log directories.

A directory without `meta.properties` gets one (there is no formatting step). Directories
that name different clusters, or another node, are somebody else's: nothing is touched.
"""

from __future__ import annotations

from collections.abc import Sequence

from ottla.log.store.meta_properties import (
    CorruptMetaProperties,
    MetaProperties,
    read_meta,
    write_meta,
)
from ottla.model.ids import uuid_to_text
from ottla.model.value import Value
from ottla.ports import Files, Random


class IdentityError(Exception):
    """The log directories belong to another broker or to several clusters."""


class Identity(Value):
    """The ids a broker runs with; directory ids in the order of log.dirs."""

    cluster_id: str
    directory_ids: list[bytes]


def check(
    files: Files, log_dirs: Sequence[str], node_id: int, cluster_id: str | None
) -> dict[str, MetaProperties]:
    """Return the ids in the directories; raise IdentityError if they are of another broker."""
    found: dict[str, MetaProperties] = {}
    for directory in log_dirs:
        try:
            meta = read_meta(files, directory)
        except CorruptMetaProperties as error:
            raise IdentityError(
                f"{directory}/meta.properties is damaged ({error}); "
                "repair it or use another directory"
            ) from error
        if meta is None:
            continue
        if meta.node_id != node_id:
            raise IdentityError(
                f"{directory} belongs to node {meta.node_id}, this is node {node_id}; "
                f"set node.id={meta.node_id} or use another directory"
            )
        expected = cluster_id or next((other.cluster_id for other in found.values()), None)
        if expected is not None and meta.cluster_id != expected:
            raise IdentityError(
                f"{directory} belongs to the cluster {meta.cluster_id}, not to {expected}; "
                "use another directory"
            )
        found[directory] = meta
    return found


def establish(
    files: Files, random: Random, log_dirs: Sequence[str], node_id: int, cluster_id: str | None
) -> Identity:
    """Return the ids of this broker, and write them to directories that have none."""
    found = check(files, log_dirs, node_id, cluster_id)
    known = next((meta.cluster_id for meta in found.values()), None)
    cluster_id = known or cluster_id or new_cluster_id(random)
    directory_ids = []
    for directory in log_dirs:
        meta = found.get(directory)
        if meta is None or not meta.directory_id:
            meta = MetaProperties(cluster_id, node_id, random.uuid())
            files.make_dirs(directory)
            write_meta(files, directory, meta)
        directory_ids.append(meta.directory_id)
    return Identity(cluster_id, directory_ids)


def new_cluster_id(random: Random) -> str:
    """Return an id for a new cluster."""
    return uuid_to_text(random.uuid())
