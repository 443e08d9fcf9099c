"""A clean of the remote part of a compacted log, by the leader of its partition.

Keys are collected from the dirty part, which may end with local segments. Then remote segments are
read from the oldest on, and what stays of a group of them becomes a new segment:

    what stays is written to a local file without a name
    COPY_STARTED of the new segment is written, with the ids of those that it replaces
    its objects are stored, the manifest last
    COPY_FINISHED is written: in one step it takes the place of the others
    the leader deletes their objects after file.delete.delay.ms (`tiered_partition.py`)

If every record of a segment stays, the segment is not stored again. Only the offset up to which it
is clean is written.

A helper process looks at the records, as for a local clean (`log/cleaner/cleaning_session.py`).
Between two steps this broker may stop leading. Then the clean ends; what was replaced so far
stays replaced, and everything else is as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ottla.broker.remote_tier.copy_task import CopyTask
from ottla.config.definition import MAX_LONG
from ottla.log.cleaner.clean_run import (
    CleaningAborted,
    CleanSettings,
    DamagedRecords,
    active_producers,
)
from ottla.log.cleaner.cleaning_task import TASK
from ottla.log.cleaner.off_loop import Started, after, in_helper
from ottla.log.cleaner.segment_groups import GroupLimits
from ottla.log.cleaner.task_messages import pack, unpack
from ottla.log.file_names import TXN_INDEX as TXN_INDEX_FILE
from ottla.log.log import Log
from ottla.log.segment.txn_index import TXN_ENTRY, AbortedTxn, read_txn_index
from ottla.model.errors import ErrorCode
from ottla.model.steps import Steps, Wait
from ottla.ports import (
    Buffer,
    File,
    FileRange,
    ObjectNotFound,
    ObjectStoreError,
    TaskFailed,
)
from ottla.tiered.layout import INDEX, LEADER_EPOCHS, LOG, SNAPSHOT, TIME_INDEX, TXN_INDEX
from ottla.tiered.metadata_records import SegmentMetadata, SegmentState, SegmentUpdate
from ottla.tiered.remote_cleanable import RemoteCleanable, RemotePart, groups_to_rewrite
from ottla.tiered.segment_files import encode_epochs, epochs_between
from ottla.tiered.segment_upload import key_of

if TYPE_CHECKING:
    from ottla.broker.remote_tier.tiered_partition import TieredPartition

T = TypeVar("T")

LANE: Final = "cleaner-remote"
_ATTEMPTS: Final = 5
_RETRY_MS: Final = 1000
_WHOLE: Final = 256 * 1024 * 1024
_LOOK_AGAIN_MS: Final = 50
_TIMES_TO_LOOK: Final = 200


class RemoteClean:
    """The clean of what was cleanable when it began, in one leader epoch."""

    def __init__(
        self, owner: TieredPartition, log: Log, plan: RemoteCleanable, settings: CleanSettings
    ) -> None:
        node = owner.tier.node
        self._owner = owner
        self._tier = owner.tier
        self._node = node
        self._log = log
        self._plan = plan
        self._settings = settings
        self._leader_epoch = owner.partition.leader_epoch
        self._id = f"remote-{node.ports.random.uuid().hex()}"
        self._latest_offset = plan.first_dirty_offset - 1
        self._now_ms = node.clock.wall_ms()
        self._is_first_group = True
        self.copy: CopyTask | None = None
        """The copy of a rewritten segment that is under way."""
        self.bytes_read = self.bytes_written = 0

    def steps(self) -> Steps[None]:
        """Clean. Raise CleaningAborted, DamagedRecords, TaskFailed or OSError."""
        try:
            yield from self._clean()
        except GeneratorExit:  # the broker has ended
            raise
        except BaseException:
            self._end_session()
            raise
        self._end_session()

    def _clean(self) -> Steps[None]:
        yield from self._begin()
        yield from self._collect_keys()
        end_offset = self._latest_offset + 1
        if end_offset <= self._plan.first_dirty_offset:
            raise DamagedRecords(
                "the keys of a single batch do not fit into log.cleaner.dedupe.buffer.size"
            )
        config = self._log.config
        limits = GroupLimits(config.segment_bytes, config.segment_index_bytes)
        for group in groups_to_rewrite(self._plan.parts, end_offset, limits):
            yield from self._rewrite(group, end_offset)

    @property
    def is_wanted(self) -> bool:
        """True while this broker leads the partition as it did at the beginning."""
        partition = self._owner.partition
        return (
            partition.leader is not None
            and partition.leader_epoch == self._leader_epoch
            and self._owner.log is self._log
            and self._log.config.compacts
        )

    # -- the first pass ------------------------------------------------------------------

    def _begin(self) -> Steps[None]:
        plan, config = self._plan, self._log.config
        producers = yield from active_producers(self._log)
        aborted = yield from self._aborted_transactions()
        fields = {
            "map_bytes": self._settings.map_bytes,
            "load_factor": self._settings.load_factor,
            "first_dirty_offset": plan.first_dirty_offset,
            "upper_bound": -1,
            "now_ms": self._now_ms,
            "bytes": plan.total_bytes,
            "seed": self._node.ports.random.uuid().hex(),
            "delete_retention_ms": config.delete_retention_ms,
            "keep_deletions_from": MAX_LONG,
            "keep_epoch_starts": True,
            "index_interval_bytes": config.index_interval_bytes,
        }
        yield from self._ask(
            pack({"task": "begin", "clean": self._id, **fields}, producers, aborted)
        )

    def _aborted_transactions(self) -> Steps[bytes]:
        """Return the aborted transactions that begin in the part to clean.

        Their markers may be in local segments.
        """
        remote: list[bytes] = []
        for part in self._plan.parts:
            if part.segment.has_aborted:
                content = yield from self._read_whole(part.segment, TXN_INDEX)
                if len(content) % TXN_ENTRY.size:
                    raise DamagedRecords(f"{key_of(part.segment, TXN_INDEX)} is cut off")
                remote.append(content)
        files, local = self._log.resources.files, list(self._log.segments)
        paths = [segment.path(TXN_INDEX_FILE) for segment in local]
        end, start = self._plan.end_offset, self._plan.parts[0].first_offset

        def read() -> bytes:
            found = {each for path in paths for each in read_txn_index(files, path)}
            for content in remote:
                found |= {AbortedTxn(*each[1:]) for each in TXN_ENTRY.iter_unpack(content)}
            return b"".join(
                TXN_ENTRY.pack(0, *each)
                for each in sorted(found)
                if each.first_offset < end and each.last_offset >= start
            )

        aborted = yield from self._off_loop(read)
        if list(self._log.segments)[: len(local)] != local:
            raise CleaningAborted("local segments have changed meanwhile")
        return aborted

    def _collect_keys(self) -> Steps[None]:
        plan = self._plan
        for part in plan.parts:
            if part.end_offset > plan.first_dirty_offset and part.first_offset < plan.end_offset:
                chunks = self._remote_chunks(part.segment)
                if (yield from self._collect_keys_of(chunks, part.first_offset, part.end_offset)):
                    return
        offset = max(plan.parts[-1].end_offset, plan.first_dirty_offset)
        while offset < plan.end_offset:
            log = self._log
            number = log.segments.number_at(offset)
            segment = log.segments[number]
            if segment.base_offset > offset or segment is log.active:
                raise CleaningAborted("local segments were deleted meanwhile")
            end = min(log.segments.base_offsets[number + 1], plan.end_offset)
            chunks = self._local_chunks(segment.file, segment.size)
            if (yield from self._collect_keys_of(chunks, offset, end)):
                return
            offset = end

    def _collect_keys_of(
        self, chunks: Iterator[Steps[tuple[bytes, int]]], first_offset: int, end_offset: int
    ) -> Steps[bool]:
        """Collect the keys of some offsets of a segment; return True if the map is full."""
        fields = {"task": "map", "clean": self._id, "offsets": [first_offset, end_offset]}
        is_first = True
        for chunk in chunks:
            content, left = yield from chunk
            answer, _ = yield from self._send(
                {**fields, "is_first": is_first, "left": left}, content
            )
            is_first = False
            self._latest_offset = max(self._latest_offset, answer["latest_offset"])
            if answer["is_full"]:
                return True
        self._latest_offset = max(self._latest_offset, end_offset - 1)
        return False

    # -- the second pass -----------------------------------------------------------------

    def _rewrite(self, group: list[RemotePart], end_offset: int) -> Steps[None]:
        """Replace remote segments by one that has what stays of them."""
        start = {"base_offset": group[0].first_offset, "is_first": self._is_first_group}
        yield from self._ask(pack({"task": "segment", "clean": self._id, **start}))
        self._is_first_group = False
        output = _Output((yield from self._off_loop(self._open_output)))
        for part in group:
            yield from self._filter(part, output)
        fields, parts = yield from self._ask(pack({"task": "finish", "clean": self._id}))
        assert fields["size"] == output.size, "everything was written"
        output.entries[1] += parts[0]
        if self._is_unchanged(group, fields["unchanged_bytes"]):
            yield from self._tell_clean(group[0].segment, end_offset)
            return
        self.bytes_written += output.size
        snapshot = yield from self._snapshot(group[-1].segment)
        self._check()
        segment = self._describe(group, end_offset, output, fields["max_timestamp"])
        yield from self._store(segment, self._objects(segment, output, snapshot))

    def _filter(self, part: RemotePart, output: _Output) -> Steps[None]:
        write: Started[None] | None = None
        fields = {
            "task": "filter",
            "clean": self._id,
            "latest_offset": self._latest_offset,
            "offsets": [part.first_offset, part.end_offset],
        }
        is_first = True
        for chunk in self._remote_chunks(part.segment):
            content, left = yield from chunk
            self.bytes_read += len(content)
            _, parts = yield from self._send(
                {**fields, "is_first": is_first, "left": left}, content
            )
            is_first = False
            if write is not None:
                yield from write.result()
            write = Started(self._node.ports.background, partial(output.append, *parts))
        if write is not None:
            yield from write.result()

    def _open_output(self) -> File:
        """Return a new file without a name: the system deletes it when the broker ends."""
        path = self._log.path(f"{self._id}.tmp")
        files = self._log.resources.files
        file = files.open(path, create=True, writable=True)
        files.unlink(path)
        return file

    def _snapshot(self, last: SegmentMetadata) -> Steps[bytes | None]:
        try:
            return (yield from self._read_whole(last, SNAPSHOT))
        except ObjectNotFound:
            return None

    def _describe(
        self, group: list[RemotePart], end_offset: int, output: _Output, max_timestamp_ms: int
    ) -> SegmentMetadata:
        node = self._node
        first, end = group[0].first_offset, group[-1].end_offset
        epochs = epochs_between(self._log, first, end)
        if not epochs:
            raise CleaningAborted("the segments were deleted meanwhile")
        return SegmentMetadata(
            self._owner.remote,
            node.ports.random.uuid(),
            first,
            end - 1,
            max_timestamp_ms,
            node.node_id,
            node.clock.wall_ms(),
            epochs,
            output.size,
            has_aborted=bool(output.entries[2]),
            clean_upto=end_offset,
            replaces=tuple(sorted(self._replaced(group))),
        )

    def _replaced(self, group: list[RemotePart]) -> set[bytes]:
        """Return the ids of a group, and of the segments in its range that are not read."""
        segments = self._owner.segments
        first, end = group[0].first_offset, group[-1].end_offset
        replaced = {part.segment.segment_id for part in group}
        if segments is not None:
            replaced |= {
                each.segment_id
                for each in segments.segments.values()
                if segments.is_readable(each)
                and first <= each.start_offset
                and each.end_offset < end
            }
        return replaced

    def _is_unchanged(self, group: list[RemotePart], unchanged_bytes: int) -> bool:
        """Return True if a group is one segment, and all its records stay."""
        part = group[0]
        return (
            unchanged_bytes == part.segment.size
            and part.first_offset == part.segment.start_offset
            and part.end_offset == part.segment.end_offset + 1
            and len(self._replaced(group)) == 1
        )

    def _tell_clean(self, segment: SegmentMetadata, end_offset: int) -> Steps[None]:
        """Write up to where a segment is clean, and wait until the metadata says so."""
        wait, codes = Wait(), list[ErrorCode]()

        def written(code: ErrorCode) -> None:
            codes.append(code)
            wait.end()

        now_ms = self._node.clock.wall_ms()
        self._tier.metadata.write(
            SegmentUpdate(
                self._owner.remote,
                segment.segment_id,
                self._node.node_id,
                now_ms,
                SegmentState.COPY_FINISHED,
                end_offset,
            ),
            written,
        )
        if not wait.is_over:
            yield wait
        self._check()
        if codes[0]:
            raise CleaningAborted(f"the metadata cannot be written: {codes[0].name}")
        for _ in range(_TIMES_TO_LOOK):
            segments = self._owner.segments
            known = None if segments is None else segments.segments.get(segment.segment_id)
            if known is None or known.clean_upto >= end_offset:
                return
            yield from self._pause(_LOOK_AGAIN_MS)
        raise CleaningAborted("the metadata does not say what was written")

    def _objects(
        self, segment: SegmentMetadata, output: _Output, snapshot: bytes | None
    ) -> dict[str, Buffer | FileRange]:
        objects: dict[str, Buffer | FileRange] = {
            LOG: FileRange(output.file, 0, output.size),
            INDEX: bytes(output.entries[0]),
            TIME_INDEX: bytes(output.entries[1]),
        }
        if snapshot is not None:
            objects[SNAPSHOT] = snapshot
        if output.entries[2]:
            objects[TXN_INDEX] = bytes(output.entries[2])
        objects[LEADER_EPOCHS] = encode_epochs(self._log, segment.end_offset + 1)
        return objects

    def _store(
        self, segment: SegmentMetadata, objects: dict[str, Buffer | FileRange]
    ) -> Steps[None]:
        """Copy the new segment; raise CleaningAborted unless it took the place of the others."""
        wait_ms = self._tier.copy_wait_ms()
        if wait_ms > 0:
            yield from self._pause(wait_ms)
        wait, results = Wait(), list[tuple[bool, str | None]]()

        def ended(is_copied: bool, problem: str | None) -> None:
            self._tier.ended()
            results.append((is_copied, problem))
            wait.end()

        self.copy = CopyTask(self._owner, self._log, segment, objects, ended)
        self._tier.run(self.copy.begin)
        if not wait.is_over:
            yield wait
        self.copy = None
        is_copied, problem = results[0]
        if not is_copied:
            raise CleaningAborted(problem or "others have rewritten the same segments")
        self._check()

    # -- reading -------------------------------------------------------------------------

    def _remote_chunks(self, segment: SegmentMetadata) -> Iterator[Steps[tuple[bytes, int]]]:
        """Yield steps that return a chunk of a segment's log, and how many bytes come after it.

        Each chunk is being read while the one before is looked at.
        """
        size, length = segment.size, self._settings.chunk_bytes
        ahead: Steps[tuple[bytes, int]] | None = None
        for position in range(0, size, length):
            count = min(length, size - position)
            following = self._fetched(segment, LOG, position, count, size - position - count)
            if ahead is not None:
                yield ahead
            ahead = following
        if ahead is not None:
            yield ahead

    def _fetched(
        self, segment: SegmentMetadata, kind: str, position: int, length: int, left: int
    ) -> Steps[tuple[bytes, int]]:
        read = self._start_read(segment, kind, position, length)

        def finish() -> Steps[tuple[bytes, int]]:
            content = yield from self._finish_read(read, segment, kind, position, length)
            if len(content) != length:
                raise DamagedRecords(
                    f"{key_of(segment, kind)} has {len(content)} bytes at {position}, not {length}"
                )
            return content, left

        return finish()

    def _read_whole(self, segment: SegmentMetadata, kind: str) -> Steps[bytes]:
        read = self._start_read(segment, kind, 0, _WHOLE)
        return (yield from self._finish_read(read, segment, kind, 0, _WHOLE))

    def _start_read(self, segment: SegmentMetadata, kind: str, position: int, length: int) -> _Read:
        read = _Read()
        self._tier.store.get(key_of(segment, kind), position, length, read.done)
        return read

    def _finish_read(
        self, read: _Read, segment: SegmentMetadata, kind: str, position: int, length: int
    ) -> Steps[bytes]:
        """Return what was read. If the store fails, ask again a few times."""
        for attempt in range(_ATTEMPTS):
            result = yield from read.result()
            self._check()
            if isinstance(result, bytes):
                self._tier.charge_read(len(result))
                wait_ms = self._tier.read_wait_ms()
                if wait_ms > 0:
                    yield from self._pause(wait_ms)
                return result
            if isinstance(result, ObjectNotFound) or attempt + 1 == _ATTEMPTS:
                raise result
            yield from self._pause(_RETRY_MS << attempt)
            read = self._start_read(segment, kind, position, length)
        raise AssertionError("the last attempt returns or raises")

    def _local_chunks(self, file: File, size: int) -> Iterator[Steps[tuple[bytes, int]]]:
        """Yield the same for a local segment. Its file stays what it was if it is replaced."""
        length = self._settings.chunk_bytes

        def read(position: int, count: int) -> Steps[tuple[bytes, int]]:
            content = yield from self._off_loop(partial(file.pread, count, position))
            return content, size - position - count

        for position in range(0, size, length):
            yield read(position, min(length, size - position))

    # -- common --------------------------------------------------------------------------

    def _send(
        self, fields: dict[str, Any], content: bytes
    ) -> Steps[tuple[dict[str, Any], list[memoryview]]]:
        """Send a chunk to the helper process. The message is put together off the loop."""
        fields["beside_clients"] = self._node.hosted_logs.cleaning.serves_clients()
        message = yield from self._off_loop(partial(pack, fields, content))
        return (yield from self._ask(message))

    def _ask(self, message: bytes) -> Steps[tuple[dict[str, Any], list[memoryview]]]:
        fields, parts = unpack((yield from in_helper(self._submit, message)))
        self._check()
        if "lost" in fields:
            raise TaskFailed(fields["lost"])
        if "damage" in fields:
            raise DamagedRecords(f"at position {fields['position']}: {fields['damage']}")
        return fields, parts

    def _submit(self, message: bytes, done: Callable[[bytes | TaskFailed], None]) -> None:
        self._node.ports.helpers.submit(TASK, message, done, LANE)

    def _off_loop(self, work: Callable[[], T]) -> Steps[T]:
        result = yield from Started(self._node.ports.background, work).result()
        self._check()
        return result

    def _pause(self, delay_ms: float) -> Steps[None]:
        yield from after(delay_ms, self._tier.later)
        self._check()

    def _check(self) -> None:
        if not self.is_wanted:
            raise CleaningAborted("it is not led here any more")

    def _end_session(self) -> None:
        try:
            self._submit(pack({"task": "end", "clean": self._id}), lambda result: None)
        except TaskFailed:
            pass  # it forgets the clean when others begin


class _Output:
    """What stays of a group: a file of batches, and the entries of the three indexes."""

    def __init__(self, file: File) -> None:
        self.file = file
        self.size = 0
        self.entries = [bytearray(), bytearray(), bytearray()]

    def append(self, batches: memoryview, *entries: memoryview) -> None:
        """Append batches and entries; off the loop."""
        if len(batches):
            self.file.pwritev([batches], self.size)
            self.size += len(batches)
        for known, added in zip(self.entries, entries, strict=True):
            known.extend(added)


class _Read:
    """A read from the store that was begun."""

    def __init__(self) -> None:
        self._wait = Wait()
        self._results: list[bytes | ObjectStoreError] = []

    def done(self, result: bytes | ObjectStoreError) -> None:
        """Take the answer of the store."""
        self._results.append(result)
        self._wait.end()

    def result(self) -> Steps[bytes | ObjectStoreError]:
        """Wait for the answer and return it."""
        if not self._wait.is_over:
            yield self._wait
        return self._results[0]
