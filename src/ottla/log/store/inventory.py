"""Find and open the logs in the directories of a broker when it starts.

A directory that cannot be read goes offline with all its partitions; the others are used. A log
that is damaged beyond recovery goes offline alone. A log that cannot be recovered because the
disk is full is opened later. Directories of deleted partitions are deleted. Directories of no
partition are not touched. The copy of a log that was moving to another directory takes its place if
the log is gone, else it is deleted and the move begins again.

A partition may be in two directories: a crash can undo the renaming of a deleted log, or a log
was created again while its directory was offline. The one with the topic's id is kept, the
longer one if both have it. The other one is renamed, never deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from errno import EDQUOT, EMFILE, ENFILE, ENOSPC
from typing import TYPE_CHECKING

from ottla.log.damage import DamagedLog
from ottla.log.file_names import DELETE_DIR, STRAY_DIR, future_partition, partition_of
from ottla.log.log import Log
from ottla.log.startup.open_log import open_log
from ottla.model.ids import METADATA_TOPIC, TopicPartition

if TYPE_CHECKING:
    from ottla.config.topic import LogConfig
    from ottla.log.store.log_directory import LogDirectory
    from ottla.log.store.log_store import LogStore


REFUSED = (ENOSPC, EDQUOT, EMFILE, ENFILE)
"""Errors after which a directory stays online: a full disk, too many open files."""


def load(
    store: LogStore,
    config_for: Callable[[TopicPartition], LogConfig],
    expected: Mapping[TopicPartition, bytes],
) -> None:
    """See LogStore.load."""
    is_complete = True
    futures: dict[TopicPartition, str] = {}
    for directory in list(store.directories.values()):
        found: dict[TopicPartition, str] = {}
        try:
            found = _partitions_in(store, directory.path, futures)
            _open_all(store, directory, found, config_for, expected)
        except OSError as error:
            is_complete = is_complete and bool(found)
            store.take_offline(directory.path, error)
            store.offline_partitions.update(_missing(store, found))
    for partition, path in futures.items():
        _end_move(store, partition, path, config_for, expected)
    if not is_complete:
        store.offline_partitions.update(_missing(store, expected))


def _end_move(
    store: LogStore,
    partition: TopicPartition,
    path: str,
    config_for: Callable[[TopicPartition], LogConfig],
    expected: Mapping[TopicPartition, bytes],
) -> None:
    """Take the copy of a log that was moving, if the log is gone; else begin it again later.

    The log is gone if the process ended while the copy took its place.
    """
    directory = store.directories.get(path.rpartition("/")[0])
    if directory is None:
        return
    is_there = store.get(partition) is not None
    is_unopened = any(partition in each.unopened for each in store.directories.values())
    try:
        if is_there:
            store.interrupted_moves[partition] = directory.path
            store.resources.trash.add_directory(path, 0)
        elif store.offline_dirs or is_unopened:
            store.notes.append(f"{path}: its log cannot be read; it is left alone")
        else:
            proper = f"{directory.path}/{partition}"
            store.resources.files.rename(path, proper)
            store.resources.files.sync_dir(directory.path)
            _open_all(store, directory, {partition: proper}, config_for, expected)
    except OSError as error:
        store.take_offline(directory.path, error)


def _partitions_in(
    store: LogStore, directory: str, futures: dict[TopicPartition, str]
) -> dict[TopicPartition, str]:
    """Return the partitions of a directory and their paths; add logs that were moving here."""
    store.resources.files.make_dirs(directory)
    found = {}
    for entry in store.resources.files.list(directory):
        if not entry.is_dir:
            continue
        path = f"{directory}/{entry.name}"
        partition = partition_of(entry.name)
        if entry.name.endswith(DELETE_DIR):
            store.resources.trash.add_directory(path, 0)
        elif (future := future_partition(entry.name)) is not None:
            futures[future] = path
        elif entry.name.endswith(STRAY_DIR) or partition is None:
            store.notes.append(f"{path}: not the directory of a partition; ignored")
        elif partition.topic != METADATA_TOPIC:
            found[partition] = path
    return found


def _open_all(
    store: LogStore,
    directory: LogDirectory,
    found: Mapping[TopicPartition, str],
    config_for: Callable[[TopicPartition], LogConfig],
    expected: Mapping[TopicPartition, bytes],
) -> None:
    checkpoint_of = store.begin(directory)
    for partition, path in found.items():
        checkpoint = checkpoint_of(partition)
        try:
            log = open_log(
                store.resources,
                path,
                partition,
                config_for(partition),
                checkpoint=checkpoint,
                notes=store.notes,
            )
        except DamagedLog as error:
            directory.unopened[partition] = checkpoint
            store.note_damage(partition, path, error)
            continue
        except OSError as error:
            if error.errno not in REFUSED:
                raise
            store.notes.append(f"{path}: cannot be opened yet: {error}")
            directory.unopened[partition] = checkpoint
            continue
        other = store.get(partition)
        if other is None:
            store.add(log)
        else:
            _choose(store, other, log, expected.get(partition))


def _choose(store: LogStore, first: Log, second: Log, topic_id: bytes | None) -> None:
    """Keep one of two logs of a partition."""
    wanted = max(first, second, key=lambda log: (log.topic_id == topic_id, log.log_end_offset))
    unwanted = second if wanted is first else first
    store.notes.append(
        f"{first.topic_partition} is in {first.directory} and in {second.directory}:"
        f" {wanted.directory} is used"
    )
    if wanted is second:
        store.drop(first)
        store.add(second)
    store.retire_stray(unwanted)


def _missing(store: LogStore, partitions: Mapping[TopicPartition, object]) -> set[TopicPartition]:
    return {partition for partition in partitions if store.get(partition) is None}
