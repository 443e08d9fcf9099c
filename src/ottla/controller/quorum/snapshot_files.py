"""Snapshots that are sent to other nodes and fetched from the leader (KIP-630)."""

from __future__ import annotations

from collections.abc import Callable

from ottla.controller.metadata_log import MetadataLog
from ottla.metadata.snapshot import SnapshotId
from ottla.model.errors import ErrorCode
from ottla.ports import File
from ottla.raft.log_view import OffsetAndEpoch
from ottla.raft.messages import FetchSnapshotResponse

MAX_PART_BYTES = 1024 * 1024


class SnapshotFiles:
    """The snapshot files of a metadata log, read and written in parts."""

    def __init__(self, log: MetadataLog) -> None:
        self._log = log
        self._files = log.log.resources.files
        self._background = log.log.resources.background
        self._writing: tuple[SnapshotId, File] | None = None

    def part(self, message: FetchSnapshotResponse, max_bytes: int) -> FetchSnapshotResponse:
        """Return the response with a part of the snapshot, or with the error that there is none."""
        asked = message.snapshot_id
        assert asked is not None
        snapshot = SnapshotId(*asked)
        if snapshot not in self._log.snapshots:
            return message._replace(error=ErrorCode.SNAPSHOT_NOT_FOUND)
        file = self._files.open(self._log.log.path(snapshot.file_name))
        try:
            size = file.size()
            if not 0 <= message.position < size:
                return message._replace(error=ErrorCode.POSITION_OUT_OF_RANGE)
            data = file.pread(min(max_bytes, MAX_PART_BYTES), message.position)
        finally:
            file.close()
        return message._replace(size=size, data=data)

    def write_part(self, asked: OffsetAndEpoch, position: int, data: bytes) -> None:
        """Write a part of a snapshot that is being fetched. Position 0 starts it again."""
        snapshot = SnapshotId(*asked)
        if position == 0 or self._writing is None or self._writing[0] != snapshot:
            self._abandon()
            path = self._log.log.path(snapshot.part_name)
            file = self._files.open(path, create=True, writable=True)
            file.truncate(0)
            self._writing = snapshot, file
        self._writing[1].pwritev([data], position)

    def install(self, asked: OffsetAndEpoch, done: Callable[[OSError | None], None]) -> None:
        """Force a fetched snapshot to disk and let it take the place of the whole log."""
        assert self._writing is not None
        (snapshot, file), self._writing = self._writing, None
        assert snapshot == SnapshotId(*asked)
        log = self._log.log

        def finish() -> None:
            file.sync()
            file.close()
            self._files.rename(log.path(snapshot.part_name), log.path(snapshot.file_name))
            self._files.sync_dir(log.directory)

        def finished(error: OSError | None) -> None:
            if error is None:
                self._log.start_over(snapshot.offset)
                self._log.snapshots.append(snapshot)
            done(error)

        self._background.submit(finish, finished)

    def _abandon(self) -> None:
        if self._writing is not None:
            self._writing[1].close()
            self._writing = None
