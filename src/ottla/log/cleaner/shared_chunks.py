"""The chunks of a part of a segment, done by two processes: this one and a copy of it.

Each claims the next chunk as soon as it is done with one. What depends on the chunks before is
passed on from the one to the other: where the first batch of a chunk begins (START), which is
known as soon as the batches before are counted, and where its output begins in the file (OUTPUT),
which is known once it is clear what stays of them. Results go to the first process, which puts
them together in the order of the log, so they are what one process finds.

A chunk with something unusual has no result: transactions, damage, a file that cannot be read or
written, more keys than the map has room for. The first process goes on alone from that chunk until
the pass ends, also if the copy ends. So nothing unusual needs code here. What was written after
that chunk is written again: the same bytes in the same place.

The copy is made at the first part of each pass: in the second one it needs the map and the marks.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.log.cleaner.batch_headers import BatchHeaders, find_batches
from ottla.log.cleaner.chunk_results import (
    KeptBatches,
    pack_kept,
    pack_keys,
    unpack_kept,
    unpack_keys,
)
from ottla.log.cleaner.cleaning_session import PADDING, ROOM, Part
from ottla.ports import (
    Buffer,
    CopyEnded,
    CopyLink,
    HelperCopies,
    HelperPace,
    SharedFile,
    SharedOutput,
)
from ottla.records.batch import LEADER_EPOCH_OFFSET, CorruptBatch

if TYPE_CHECKING:
    from ottla.log.cleaner.array_session import ArraySession

_HEAD: Final = Struct("=BxHIqqq")
"""What it is, the number of a chunk, the size of what follows, three numbers."""
_PART, _START, _OUTPUT, _RESULT, _DONE = range(5)
_PART_FIELDS: Final = Struct("=qqqqq?")
_FIRST_PASS: Final = -1
_STOP: Final = -1
_FEWEST_CHUNKS: Final = 4
_NO_EPOCH: Final = -(2**31)
_NONE: Final = -2
"""The last offset of no batches. All offsets are larger."""

_Numbers = tuple[int, int, int]
_STOPPED: Final[_Numbers] = _STOP, 0, 0


class Progress(NamedTuple):
    """What is known where a chunk begins."""

    rest: int
    """How many bytes before it belong to its first batch."""
    needed: int
    """How many bytes that batch has at least, 0 if that is not known."""
    leader_epoch: int | None
    """The leader epoch of the batch before."""


class _Result(NamedTuple):
    """What was found in a chunk."""

    numbers: _Numbers
    """_STOP if something is unusual. In the first pass the last offset; in the second one how many
    records were read and kept."""
    content: bytes | bytearray


class SharedChunks:
    """Shares the chunks of a clean with a copy of this process."""

    def __init__(self, session: ArraySession) -> None:
        self._session = session
        self._link: CopyLink | None = None
        self._is_over = False
        """True if something unusual was found: the rest of the pass is done by one process."""
        self._is_copy = False
        self._reader = _Reader()
        self._starts: dict[int, _Numbers] = {}
        self._outputs: dict[int, _Numbers] = {}
        self._results: dict[int, _Result] = {}
        """Of chunks from `_next` on."""
        self._next = 0
        """The first chunk whose result was not taken."""

    # -- in the first process ------------------------------------------------------------

    def do(self, part: Part) -> int:
        """Do chunks of a part from the first one on; return how many are done."""
        link = self._started(part)
        if link is None:
            return 0
        session = self._session
        assert session.file is not None
        session.finish_writes()
        self._begin()
        rest, needed, epoch = session.progress
        self._starts[0] = rest, needed, _NO_EPOCH if epoch is None else epoch
        is_done, HelperPace.has_copy = False, True
        try:
            self._hand_over(link, part)
            self._work(link, part, session.file, session.output_file)
            while self._receive(link)[0] != _DONE:
                self._take_results(part)
            is_done = not self._is_over
        except CopyEnded:
            pass  # this process goes on alone
        finally:
            HelperPace.has_copy = False
            self._results.clear()
            if not is_done:
                self._is_over = True
                self._end_copy()
        rest, needed, epoch = self._starts[self._next]
        progress = Progress(rest, needed, None if epoch == _NO_EPOCH else epoch)
        session.resume(part.position + min(self._next * part.step, part.size), progress)
        return self._next

    def end(self) -> None:
        """End the copy, if there is one. The next pass has another one."""
        self._end_copy()
        self._is_over = False

    def _started(self, part: Part) -> CopyLink | None:
        """Return the link to the copy, or make one; None if this part is not shared."""
        if (
            self._is_over
            or HelperPace.beside_clients
            or HelperCopies.start is None
            or part.chunks < _FEWEST_CHUNKS
            or not self._session.can_share
            or (part.latest_offset is not None and self._session.output_file is None)
        ):
            return None
        if self._link is None:
            try:
                self._link = HelperCopies.start(self._serve)
            except OSError:  # too many processes, or too little memory
                self._is_over = True
        return self._link

    def _end_copy(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            link.close()

    def _hand_over(self, link: CopyLink, part: Part) -> None:
        session = self._session
        assert session.file is not None
        latest_offset = _FIRST_PASS if part.latest_offset is None else part.latest_offset
        fields = _PART_FIELDS.pack(*part[:4], latest_offset, HelperPace.stores_soon)
        link.send([_HEAD.pack(_PART, 0, len(fields), 0, 0, 0), fields])
        link.send_files(session.file, session.output_file)
        link.offer(part.chunks)
        self._tell(link, _START, 0, self._starts[0])
        self._tell(link, _OUTPUT, 0, (session.output.size, 0, 0))

    def _take_results(self, part: Part) -> None:
        """Take the results that are there, in the order of the log."""
        while not self._is_over and self._next in self._results:
            if self._take(part, self._results[self._next]):
                del self._results[self._next]
                self._next += 1
            else:
                self._is_over = True

    def _take(self, part: Part, result: _Result) -> bool:
        session, (first, second, _) = self._session, result.numbers
        if first == _STOP:
            return False
        if part.latest_offset is None:
            return session.take_keys(unpack_keys(result.content), first)
        session.records_read += first
        session.records_kept += second
        session.output.add_all([], unpack_kept(result.content))
        return True

    # -- in the copy ---------------------------------------------------------------------

    def _serve(self, link: CopyLink) -> None:
        """Do chunks until the first process ends the copy."""
        self._is_copy = HelperPace.has_copy = True
        while True:
            what, fields = self._receive(link)
            if what != _PART:
                continue  # it was told after the last chunk
            *sizes, latest_offset, HelperPace.stores_soon = _PART_FIELDS.unpack(fields)
            position, size, step, left = sizes
            upto = None if latest_offset == _FIRST_PASS else latest_offset
            part = Part(position, size, step, left, upto)
            file, output = link.receive_files()
            self._begin()
            self._work(link, part, file, output)
            link.send([_HEAD.pack(_DONE, 0, 0, 0, 0, 0)])
            file.close()
            if output is not None:
                output.close()

    # -- in both -------------------------------------------------------------------------

    def _begin(self) -> None:
        self._starts.clear()
        self._outputs.clear()
        self._next = 0

    def _work(
        self, link: CopyLink, part: Part, file: SharedFile, output: SharedOutput | None
    ) -> None:
        """Do chunks until all are claimed."""
        while (number := link.claim()) is not None:
            numbers, content = self._do(link, part, number, file, output)
            if self._is_copy:
                size = sum(map(len, content))
                link.send([_HEAD.pack(_RESULT, number, size, *numbers), *content])
            else:
                self._results[number] = _Result(numbers, b"".join(content))
                self._take_results(part)

    def _do(
        self,
        link: CopyLink,
        part: Part,
        number: int,
        file: SharedFile,
        output: SharedOutput | None,
    ) -> tuple[_Numbers, list[Buffer]]:
        """Do a chunk, and tell what depends on it; return its result."""
        batches = self._find_batches(link, part, number, file)
        if part.latest_offset is None:
            if batches is None or (keys := self._keys(batches)) is None:
                return _STOPPED, []
            return keys
        kept = None if batches is None else self._kept(batches, part.latest_offset)
        place, _, _ = self._wait(link, self._outputs, number)
        if place == _STOP or kept is None:
            self._tell(link, _OUTPUT, number + 1, _STOPPED)
            return _STOPPED, []
        numbers, pieces, content = kept
        self._tell(link, _OUTPUT, number + 1, (place + sum(map(len, pieces)), 0, 0))
        assert output is not None
        try:
            output.write(pieces, place)
        except OSError:
            return _STOPPED, []
        return numbers, content

    def _find_batches(
        self, link: CopyLink, part: Part, number: int, file: SharedFile
    ) -> BatchHeaders | None:
        """Return the batches that end in a chunk, and tell where the next one begins."""
        position, size, left = part.chunk(number)
        reader, found, following = self._reader, list[int](), _STOPPED
        is_read = reader.read(file, position, size)
        rest, needed, epoch = self._wait(link, self._starts, number)
        if rest != _STOP and is_read and not self._is_over:
            self._session.leader_epoch = None if epoch == _NO_EPOCH else epoch
            try:
                found, rest, needed = reader.find(file, rest, needed, left)
                following = rest, needed, reader.leader_epoch(found[-1]) if found else epoch
            except (CorruptBatch, OSError):
                pass
        self._tell(link, _START, number + 1, following)
        if following == _STOPPED:
            return None
        try:
            headers = BatchHeaders(reader.data, found)
        except CorruptBatch:
            return None
        return None if (headers.are_control | headers.are_transactional).any() else headers

    def _keys(self, headers: BatchHeaders) -> tuple[_Numbers, list[Buffer]] | None:
        """Return the keys of batches; None if they are damaged."""
        if not len(headers):
            return (_NONE, 0, 0), []
        try:
            keys = self._session.find_keys(self._reader.data, headers)
        except (CorruptBatch, IndexError):
            return None
        return (int(headers.last_offsets[-1]), 0, 0), pack_keys(keys)

    def _kept(
        self, headers: BatchHeaders, latest_offset: int
    ) -> tuple[_Numbers, list[Buffer], list[Buffer]] | None:
        """Return what stays of batches, and how to tell that; None if they are damaged."""
        if not len(headers):
            none = headers.starts
            return (0, 0, 0), [], pack_kept(KeptBatches(none, none, none, 0))
        session = self._session
        before = session.records_read, session.records_kept
        try:
            pieces, kept = session.select(self._reader.data, headers, latest_offset)
        except (CorruptBatch, IndexError):
            return None
        else:
            read, stay = session.records_read - before[0], session.records_kept - before[1]
            return (read, stay, 0), pieces, pack_kept(kept)
        finally:  # `_take` counts them
            session.records_read, session.records_kept = before

    def _tell(self, link: CopyLink, what: int, number: int, numbers: _Numbers) -> None:
        """Let both processes know something about a chunk."""
        self._note(what, number, numbers)
        link.send([_HEAD.pack(what, number, 0, *numbers)])

    def _note(self, what: int, number: int, numbers: _Numbers) -> None:
        (self._starts if what == _START else self._outputs)[number] = numbers

    def _wait(self, link: CopyLink, told: dict[int, _Numbers], number: int) -> _Numbers:
        """Return what was told about a chunk."""
        while number not in told:
            self._receive(link)
        return told[number]

    def _receive(self, link: CopyLink) -> tuple[int, bytearray]:
        """Take a message of the other process; return what it is, and what follows it."""
        what, number, size, *three = _HEAD.unpack(link.receive(_HEAD.size))
        content = link.receive(size) if size else bytearray()
        numbers = three[0], three[1], three[2]
        if what == _RESULT:
            self._results[number] = _Result(numbers, content)
        elif what in (_START, _OUTPUT):
            self._note(what, number, numbers)
        return what, content


class _Reader:
    """The bytes of one chunk, and before them those of its first batch."""

    def __init__(self) -> None:
        self.data = bytearray()
        self._position = self._start = self._end = 0

    def read(self, file: SharedFile, position: int, size: int) -> bool:
        """Read a chunk; return False if that is not possible."""
        if not ROOM + size + PADDING <= len(self.data) <= 4 * (ROOM + size + PADDING):
            self.data = bytearray(ROOM + size + PADDING)
        self._position, self._start, self._end = position, ROOM, ROOM + size
        try:
            with memoryview(self.data) as view:
                return file.read_into(view[ROOM : ROOM + size], position) == size
        except OSError:
            return False

    def find(
        self, file: SharedFile, rest: int, needed: int, left: int
    ) -> tuple[list[int], int, int]:
        """Return where batches begin that end in the chunk.

        `rest`, `needed` and `left` are as in `Progress` and `Chunk`; also return the first two for
        the next chunk. Raise CorruptBatch where no batch begins.
        """
        if rest > self._start:  # a large batch
            size = self._end - self._start
            self.data = bytearray(rest + size + PADDING)
            self._position -= rest
            self._start, self._end = 0, rest + size
            missing = self._end
        else:
            self._start -= rest
            missing = rest
            self._position -= rest
        with memoryview(self.data) as view:
            file.read_into(view[self._start : self._start + missing], self._position)
        found, after = list[int](), self._start
        if self._end - after >= needed:
            found, after, needed = find_batches(self.data, after, self._end)
        if needed > self._end - after + left:
            raise CorruptBatch(0, "a batch is longer than its segment")
        return found, self._end - after, needed

    def leader_epoch(self, position: int) -> int:
        """Return the leader epoch of a batch."""
        at = position + LEADER_EPOCH_OFFSET
        return int.from_bytes(self.data[at : at + 4], "big", signed=True)
