"""One clean of one log, in steps on the loop that mostly wait for others.

A helper process looks at the records (`cleaning_session.py`). It reads and appends to files itself
if it can, otherwise that happens in the background here. Only choosing what to read and the swap of
segments happen on the loop.

Segments are cleaned from the oldest on, so values that a tombstone deletes are gone before it.

Between two steps the log may be truncated, deleted or shortened by retention. Then the clean is
given up and its files are removed. What was swapped in before stays: each swap leaves a valid log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from ottla.log.cleaner.cleanable import Cleanable
from ottla.log.cleaner.cleaning_session import ACTIVE_PRODUCER
from ottla.log.cleaner.off_loop import Started, after, in_helper
from ottla.log.cleaner.segment_groups import GroupLimits, SegmentSizes, group_sizes
from ottla.log.cleaner.segment_swap import CleanedFiles, swap_in
from ottla.log.cleaner.task_messages import pack, unpack
from ottla.log.file_names import INDEX, LOG, TIME_INDEX, TXN_INDEX
from ottla.log.segment.index_jobs import IndexNotReady
from ottla.log.segment.txn_index import TXN_ENTRY, read_txn_index
from ottla.model.steps import Steps
from ottla.ports import File, Files, TaskFailed

if TYPE_CHECKING:
    from ottla.log.cleaner.io_throttle import IoThrottle
    from ottla.log.log import Log
    from ottla.log.segment.segment import Segment

T = TypeVar("T")

_PRODUCERS_A_STEP: Final = 500
_LONGEST_PAUSE_MS: Final = 20_000
"""A helper process ends after a minute without a task, so longer waits are interrupted."""

_UNLIMITED_RATE: Final = 1e18
_CHUNKS_A_TASK: Final = 16
"""How many chunks the helper reads itself in one task, unless the rate is limited."""

_SYNCS_AHEAD: Final = 2
"""How many parts of the output the background may still have to force to disk.

If the broker writes them, they take memory, and the next one waits for all of them.
"""


class CleaningAborted(Exception):
    """The log has changed in a way that makes the clean useless."""


class DamagedRecords(Exception):
    """The log has records that cannot be read; it is left alone."""


class CleanSettings(NamedTuple):
    """The broker's settings for one clean."""

    map_bytes: int
    load_factor: float
    chunk_bytes: int


class CleanStats:
    """What a clean has done so far."""

    def __init__(self, started_ms: float) -> None:
        self.started_ms = started_ms
        self.mapped_ms = self.ended_ms = started_ms
        self.bytes_mapped = self.bytes_read = self.bytes_written = 0
        self.records_read = self.records_kept = 0
        self.keys = 0
        self.utilization = 0.0
        self.total_bytes = 0

    @property
    def seconds(self) -> float:
        return (self.ended_ms - self.started_ms) / 1000


class CleanWorld(NamedTuple):
    """What a clean needs of its surroundings."""

    submit: Callable[[bytes, Callable[[bytes | TaskFailed], None]], None]
    """Sends a task to the helper process of this clean."""
    call_later: Callable[[float, Callable[[], None]], None]
    is_current: Callable[[], bool]
    """False if the log is not served any more."""
    serves_clients: Callable[[], bool]
    """True while clients send requests to the broker."""
    throttle: IoThrottle


class _Chunk(NamedTuple):
    """A part of a segment, as a message to the helper."""

    segment: Segment
    position: int
    size: int
    fields: dict[str, Any]
    message: Started[bytes] | None
    """The message with its bytes, read in the background; None if the helper reads them."""


class _Output:
    """The files that take the place of a group of segments."""

    def __init__(
        self, group: list[Segment], files: CleanedFiles, creating: Started[None], *, is_last: bool
    ) -> None:
        self.group = group
        self.files = files
        self.is_last = is_last
        """Whether no other group is written while this one is forced to disk."""
        self.begun = [creating]
        """What the background still does with them, one after the other."""
        self.is_written = False
        self.fields: dict[str, Any] = {}
        """What the helper says about the new segment once it is written."""

    def force(self, forcing: Started[None], fields: dict[str, Any]) -> None:
        """Note that everything is written, and is being forced to disk."""
        self.begun.append(forcing)
        self.fields = fields
        self.is_written = True


class CleanRun:
    """The clean of the part of a log that is cleanable now."""

    def __init__(
        self, clean_id: str, plan: Cleanable, settings: CleanSettings, world: CleanWorld
    ) -> None:
        self._id = clean_id
        self.plan = plan
        self.log: Log = plan.log
        self._settings = settings
        self._world = world
        self._resources = plan.log.resources
        self._latest_offset = plan.first_dirty_offset - 1
        self._truncations = plan.log.truncations
        self._now_ms = self._resources.clock.wall_ms()
        self._is_first_group = True
        self._outputs: list[_Output] = []
        """Those that are not swapped in, from the oldest on: three at most."""
        self.lane = ""
        """Which helper process works for this clean."""
        self._file: File | None = None
        self._helper_reads = self._resources.files.is_shared
        """Whether the helper process reads the files itself."""
        self.stats = CleanStats(self._resources.clock.monotonic_ms())

    def steps(self) -> Steps[int]:
        """Clean, and return the new first dirty offset.

        Raise CleaningAborted, DamagedRecords, TaskFailed or OSError; the log is valid then, too.
        """
        try:
            end_offset: int = yield from self._clean()
        except GeneratorExit:  # the broker has ended; the next start removes unfinished files
            raise
        except BaseException:
            self._end_session()
            raise
        self._end_session()
        return end_offset

    def _clean(self) -> Steps[int]:
        yield from self._begin()
        yield from self._collect_keys()
        self.stats.mapped_ms = self._resources.clock.monotonic_ms()
        end_offset = self._latest_offset + 1
        if end_offset <= self.plan.first_dirty_offset:
            raise DamagedRecords(
                "the keys of a single batch do not fit into log.cleaner.dedupe.buffer.size"
            )
        yield from self._clean_groups((yield from self._groups(end_offset)))
        self.stats.ended_ms = self._resources.clock.monotonic_ms()
        return end_offset

    # -- the first pass ------------------------------------------------------------------

    def _begin(self) -> Steps[None]:
        plan, config = self.plan, self.log.config
        producers = yield from active_producers(self.log)
        aborted = yield from self._off_loop(self._aborted_transactions())
        fields = {
            "map_bytes": self._settings.map_bytes,
            "load_factor": self._settings.load_factor,
            "first_dirty_offset": plan.first_dirty_offset,
            "upper_bound": plan.first_uncleanable_offset,
            "now_ms": self._now_ms,
            "bytes": plan.total_bytes,
            "seed": self._resources.random.uuid().hex(),
            "delete_retention_ms": config.delete_retention_ms,
            "keep_deletions_from": self.log.keeps_deletions_from,
            "keep_epoch_starts": config.remote_storage_enable,
            "index_interval_bytes": config.index_interval_bytes,
        }
        yield from self._ask(
            pack({"task": "begin", "clean": self._id, **fields}, producers, aborted)
        )

    def _aborted_transactions(self) -> Callable[[], bytes]:
        """Return work that reads the aborted transactions that begin in the range to clean."""
        files, upper = self._resources.files, self.plan.first_uncleanable_offset
        paths = [segment.path(TXN_INDEX) for segment in self.log.segments]

        def read() -> bytes:
            found = {each for path in paths for each in read_txn_index(files, path)}
            return b"".join(
                TXN_ENTRY.pack(0, *each) for each in sorted(found) if each.first_offset < upper
            )

        return read

    def _collect_keys(self) -> Steps[None]:
        plan = self.plan
        for segment in self._segments_between(
            plan.first_dirty_offset, plan.first_uncleanable_offset
        ):
            following = self.log.segments.end_of(segment)
            if following is None or segment not in self.log.segments:
                raise CleaningAborted("a segment was deleted meanwhile")
            position = 0
            if segment.base_offset < plan.first_dirty_offset:
                position = self._position_of(segment, plan.first_dirty_offset)
            is_full = yield from self._collect_keys_of(segment, position)
            if is_full:
                return
            self._latest_offset = max(self._latest_offset, following - 1)

    def _collect_keys_of(self, segment: Segment, start: int) -> Steps[bool]:
        """Collect the keys of a segment from a position on; return True if the map is full."""
        for chunk in self._chunks(segment, start, {"task": "map"}):
            fields, _ = yield from self._process(chunk)
            self.stats.bytes_mapped += chunk.size
            self.stats.keys, self.stats.utilization = fields["keys"], fields["utilization"]
            self._latest_offset = max(self._latest_offset, fields["latest_offset"])
            if fields["is_full"]:
                return True
            yield from self._slow_down(chunk.size)
        return False

    # -- the second pass -----------------------------------------------------------------

    def _groups(self, end_offset: int) -> Steps[list[list[Segment]]]:
        """Return the segments up to an offset in groups, each for one new segment."""
        segments = self._segments_between(0, end_offset)
        self.stats.total_bytes = sum(segment.size for segment in segments)
        sizes = yield from self._off_loop(self._sizes(segments))
        config, groups, start = self.log.config, [], 0
        limits = GroupLimits(config.segment_bytes, config.segment_index_bytes)
        copied = self._count_copied(segments)
        for counts in (group_sizes(sizes[:copied], limits), group_sizes(sizes[copied:], limits)):
            for count in counts:
                groups.append(segments[start : start + count])
                start += count
        return groups

    def _count_copied(self, segments: list[Segment]) -> int:
        """Return how many segments the remote tier has: others are not put into one with them."""
        highest = self.log.highest_remote_offset
        return sum((self.log.segments.end_of(each) or 0) - 1 <= highest for each in segments)

    def _sizes(self, segments: list[Segment]) -> Callable[[], list[SegmentSizes]]:
        files, base_offsets = self._resources.files, self.log.segments.base_offsets
        ends = [self.log.segments.end_of(segment) or base_offsets[-1] for segment in segments]
        paths = [(segment.path(INDEX), segment.path(TIME_INDEX)) for segment in segments]
        known = [(segment.base_offset, segment.size) for segment in segments]

        def read() -> list[SegmentSizes]:
            return [
                SegmentSizes(base, end, size, _size(files, index), _size(files, times))
                for (base, size), end, (index, times) in zip(known, ends, paths, strict=True)
            ]

        return read

    def _clean_groups(self, groups: list[list[Segment]]) -> Steps[None]:
        """Clean groups one after the other."""
        try:
            yield from self._write_groups(groups)
            yield from self._swap_forced()
        except GeneratorExit:
            raise
        except BaseException:
            for output in self._outputs:
                self._resources.background.submit(output.files.remove, lambda result: None)
            raise
        yield from self._off_loop(lambda: self._resources.files.sync_dir(self.log.directory))

    def _write_groups(self, groups: list[list[Segment]]) -> Steps[None]:
        """Write what stays of each group, while that of the one before is forced to disk."""
        self._create_output(groups)
        for number in range(len(groups)):
            output = self._outputs[-1]
            try:
                fields, last_time_entry = yield from self._fill(output)
            except GeneratorExit:
                raise
            except BaseException:
                yield from self._swap_forced()
                raise
            # Work in the background is done in turn, and forcing files to disk takes a while.
            self._create_output(groups[number + 1 :])
            yield from self._swap_forced()
            output.force(self._start(partial(output.files.finish, last_time_entry)), fields)

    def _create_output(self, groups: list[list[Segment]]) -> None:
        """Begin to create the files for the first of these groups, if there is one."""
        for group in groups[:1]:
            files = CleanedFiles(self._resources.files, self.log.directory, group[0].base_offset)
            is_last = len(groups) == 1
            self._outputs.append(_Output(group, files, self._start(files.create), is_last=is_last))

    def _swap_forced(self) -> Steps[None]:
        """Put the segment that is being forced to disk, if any, in the place of its group."""
        if not self._outputs or not self._outputs[0].is_written:
            return
        output = self._outputs[0]
        files, fields = output.files, output.fields
        for work in output.begun:
            yield from self._finish(work)
        assert fields["size"] == files.size, "everything was written"
        self._check_group(output.group)
        yield from self._off_loop(files.rename)
        self._check_group(output.group)
        # If the swap fails in the middle, the next start needs these files to complete it.
        self._outputs.remove(output)
        new = swap_in(self.log, output.group, files)
        new.set_max_timestamp(fields["max_timestamp"], fields["max_timestamp_offset"])

    def _fill(self, output: _Output) -> Steps[tuple[dict[str, Any], memoryview]]:
        """Write what stays of a group; return what the helper says, and the last index entry."""
        yield from self._finish(output.begun[0])
        fields: dict[str, Any] = {
            "base_offset": output.group[0].base_offset,
            "is_first": self._is_first_group,
        }
        if self._resources.files.is_shared:
            fields["path"] = output.files.path(LOG)
        yield from self._ask(pack({"task": "segment", "clean": self._id, **fields}))
        self._is_first_group = False
        for segment in output.group:
            yield from self._clean_segment(segment, output)
        fields, parts = yield from self._ask(pack({"task": "finish", "clean": self._id}))
        self.stats.records_read = fields["records_read"]
        self.stats.records_kept = fields["records_kept"]
        return fields, parts[0]

    def _clean_segment(self, segment: Segment, output: _Output) -> Steps[None]:
        fields = {
            "task": "filter",
            "latest_offset": self._latest_offset,
            "stores_soon": output.is_last,
        }
        for chunk in self._chunks(segment, 0, fields):
            answer, parts = yield from self._process(chunk)
            yield from self._append(output, answer["size"], parts)
            self.stats.bytes_read += chunk.size
            self.stats.bytes_written += answer["size"]
            yield from self._slow_down(chunk.size + answer["size"])

    def _append(self, output: _Output, size: int, parts: list[memoryview]) -> Steps[None]:
        """Append what stays of a part to the output, unless the helper process has done so.

        The background has as little to do as possible: its work takes turns with requests.
        """
        files, batches = output.files, parts[0]
        if len(batches):
            yield from self._finish_begun(output, 0)
            output.begun.append(self._start(partial(files.append, *parts)))
            return
        files.note(size, *parts[1:])
        if files.is_sync_due:
            yield from self._finish_begun(output, _SYNCS_AHEAD)
            output.begun.append(self._start(files.sync_later()))

    def _finish_begun(self, output: _Output, most: int) -> Steps[None]:
        """Wait until the background has at most this much left to do with the output."""
        while len(output.begun) > most:
            yield from self._finish(output.begun.pop(0))

    def _check_group(self, group: list[Segment]) -> None:
        """Raise CleaningAborted unless these are still neighbours in the log."""
        number = self.log.segments.number_at(group[0].base_offset)
        now = [self.log.segments[i] for i in range(number, len(self.log.segments))][: len(group)]
        if now != group or group[-1] is self.log.active:
            raise CleaningAborted("its segments have changed")

    # -- common --------------------------------------------------------------------------

    def _segments_between(self, start: int, end: int) -> list[Segment]:
        """Return the rolled segments that have offsets from `start` up to before `end`."""
        active = self.log.active
        segments = self.log.segments.from_offset(start)
        return [each for each in segments if each.base_offset < end and each is not active]

    def _position_of(self, segment: Segment, offset: int) -> int:
        try:
            batch = self._resources.index_jobs.locate(segment, offset)
        except IndexNotReady:
            raise CleaningAborted("an index is being rebuilt") from None
        return segment.size if batch is None else batch.position

    def _chunks(self, segment: Segment, start: int, fields: dict[str, Any]) -> Iterator[_Chunk]:
        """Yield the chunks of a segment. Each is being read while the one before is looked at."""
        position, end = start, segment.size
        ahead: _Chunk | None = None
        while position < end:
            following = self._read_chunk(segment, position, start, fields)
            position += following.size
            if ahead is not None:
                yield ahead
            ahead = following
        if ahead is not None:
            yield ahead

    def _read_chunk(
        self, segment: Segment, position: int, start: int, fields: dict[str, Any]
    ) -> _Chunk:
        path, end = segment.path(LOG), segment.size
        size = self._settings.chunk_bytes
        if self._helper_reads and self._is_unlimited:
            size *= _CHUNKS_A_TASK
        size = min(size, end - position)
        fields = {
            **fields,
            "clean": self._id,
            "is_first": position == start,
            "left": end - position - size,
        }
        if self._helper_reads:
            chunk_bytes = self._settings.chunk_bytes
            fields |= {"path": path, "position": position, "size": size, "chunk": chunk_bytes}
            return _Chunk(segment, position, size, fields, None)
        work = partial(self._read, path, position, size, fields)
        return _Chunk(segment, position, size, fields, self._start(work))

    def _read(self, path: str, position: int, size: int, fields: dict[str, Any]) -> bytes:
        """Return a message with the bytes of a chunk; off the loop."""
        file = self._file
        if file is None or file.path != path:
            file = self._file = self._resources.files.open(path)
        return pack(fields, file.pread(size, position))

    def _process(self, chunk: _Chunk) -> Steps[tuple[dict[str, Any], list[memoryview]]]:
        """Have the helper process look at a chunk of a segment."""
        path, position, size = chunk.segment.path(LOG), chunk.position, chunk.size
        chunk.fields["beside_clients"] = self._world.serves_clients()
        message = pack(chunk.fields)
        try:
            if chunk.message is not None:
                message = yield from self._finish(chunk.message)
            answer = yield from self._ask(message)
            if "unread" in answer[0]:
                self._helper_reads = False
                work = partial(self._read, path, position, size, chunk.fields)
                answer = yield from self._ask((yield from self._off_loop(work)))
            return answer
        except FileNotFoundError:
            if chunk.segment not in self.log.segments:
                raise CleaningAborted("a segment was deleted meanwhile") from None
            raise
        except DamagedRecords as damage:
            if chunk.segment not in self.log.segments or position + size > chunk.segment.size:
                raise CleaningAborted("a segment was cut off meanwhile") from None
            where = f"{path}, in the {size} bytes from {position}"
            raise DamagedRecords(f"{where}: {damage}") from None

    def _ask(self, message: bytes) -> Steps[tuple[dict[str, Any], list[memoryview]]]:
        fields, parts = unpack((yield from in_helper(self._world.submit, message)))
        self._check()
        if "lost" in fields:
            raise TaskFailed(fields["lost"])
        if "errno" in fields:
            raise OSError(fields["errno"], fields["error"], self.log.directory)
        if "damage" in fields:
            raise DamagedRecords(f"at position {fields['position']}: {fields['damage']}")
        return fields, parts

    def _start(self, work: Callable[[], T]) -> Started[T]:
        return Started(self._resources.background, work)

    def _finish(self, started: Started[T]) -> Steps[T]:
        """Return the result of work in the background, if the clean still makes sense."""
        try:
            result = yield from started.result()
        except OSError:
            self._check()
            raise
        self._check()
        return result

    def _off_loop(self, work: Callable[[], T]) -> Steps[T]:
        return (yield from self._finish(self._start(work)))

    def _check(self) -> None:
        if not self._world.is_current():
            raise CleaningAborted("it is not served any more")
        if self.log.truncations != self._truncations:
            # A key whose last record is gone needs its record before that again.
            raise CleaningAborted("it was truncated meanwhile")
        if self.log.segments.base_offsets[0] >= self.plan.first_uncleanable_offset:
            raise CleaningAborted("everything to clean was deleted meanwhile")

    @property
    def _is_unlimited(self) -> bool:
        return self._world.throttle.bytes_per_second >= _UNLIMITED_RATE

    def _slow_down(self, size: int) -> Steps[None]:
        if self._is_unlimited:
            return
        throttle, clock = self._world.throttle, self._resources.clock
        throttle.charge(size, clock.monotonic_ms())
        left_ms = throttle.delay_ms(clock.monotonic_ms())
        while left_ms > 0:
            yield from after(min(left_ms, _LONGEST_PAUSE_MS), self._world.call_later)
            self._check()
            left_ms = throttle.delay_ms(clock.monotonic_ms())
            if left_ms > 0:
                yield from self._ask(pack({"task": "ping", "clean": self._id}))

    def _end_session(self) -> None:
        self._file = None  # not closed: the background may still read from it
        try:
            message = pack({"task": "end", "clean": self._id})
            self._world.submit(message, lambda result: None)
        except TaskFailed:
            pass  # it forgets the clean when others begin


def active_producers(log: Log) -> Steps[bytes]:
    """Return the last batch with data of each known producer, a few with each step."""
    packed = bytearray()
    producers = log.producers.entries
    ids = iter(list(producers))
    while some := list(islice(ids, _PRODUCERS_A_STEP)):
        for producer_id in some:
            entry = producers.get(producer_id)
            if entry is not None:
                last = entry.last_batch
                offset = -1 if last is None else last.last_offset
                packed += ACTIVE_PRODUCER.pack(producer_id, offset, entry.producer_epoch)
        yield
    return bytes(packed)


def _size(files: Files, path: str) -> int:
    try:
        return files.stat(path).size
    except FileNotFoundError:
        return 0
