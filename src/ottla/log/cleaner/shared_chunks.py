"""How two processes share the chunks of one task of a clean.

Threads would not help: most calls are short, and hold the interpreter's lock. So a copy of the
helper process (`Twin`) looks at some of the chunks, and this process at the others. What both find
is taken here in the order of the log, so that the result is the same as that of one process.

Both must know where their chunks begin without having read what is before. The offset index says
where batches are, and chunks are cut there. It is not trusted: what was found in a chunk counts
only if the one before it ended with a whole batch. Whatever the twin cannot do alone, it declines:
damage, and batches that depend on earlier ones (transactions). Then this process does the rest by
itself. It does so too if the twin takes long, because the machine has no core for it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from ottla.log.cleaner.cleaning_session import Chunk
from ottla.ports import Buffer, Twin, TwinGone

_MOST_ASKED: Final = 2
"""How many chunks the twin has at a time: one that it looks at, and the next one."""
_WRITE: Final = -1

R = TypeVar("R")


class Cut(NamedTuple):
    """A piece of a range of a segment."""

    start: int
    end: int
    begins_batch: bool
    ends_batch: bool


def cut(
    start: int, end: int, step: int, batches: Sequence[int], ends: tuple[bool, bool]
) -> list[Cut]:
    """Cut a range into pieces of at most `step` bytes, where batches begin as far as possible.

    `batches` has positions of some batches, rising. `ends` says whether the range begins and ends
    with whole batches.
    """
    found: list[Cut] = []
    begins, is_whole_end = ends
    while start < end:
        upto, is_whole = min(start + step, end), is_whole_end
        if upto < end:
            number = bisect_right(batches, upto) - 1
            is_whole = number >= 0 and batches[number] > start
            upto = batches[number] if is_whole else upto
        found.append(Cut(start, upto, begins, is_whole))
        start, begins = upto, is_whole
    return found


class ChunkWork(Protocol[R]):
    """What is done with chunks in one pass."""

    def do(self, chunk: Chunk) -> None:
        """Look at a chunk whose turn it is, and take what was found."""
        ...

    def look_ahead(self, chunk: Chunk) -> R | None:
        """Look at a chunk whose turn comes later; None if it must wait for its turn."""
        ...

    def request(self, chunk: Chunk) -> bytes:
        """Return what asks the twin to look at a chunk."""
        ...

    def found_by_twin(self, answer: Buffer) -> R | None:
        """Return what the twin has found; None if it declines."""
        ...

    def take(self, found: R) -> bytes | None:
        """Take what was found in the chunk whose turn it is; None if that is not possible.

        Return a request to the twin to write what it has, b"" if there is none.
        """
        ...

    def written(self, answer: Buffer) -> None:
        """Raise the error of a write by the twin, if there was one."""
        ...

    @property
    def has_rest(self) -> bool:
        """True if the last chunk that was looked at here has ended in the middle of a batch."""
        ...

    def drop_rest(self) -> None:
        """Begin the next chunk with a batch."""
        ...

    @property
    def is_over(self) -> bool:
        """True if the chunks that follow do not matter."""
        ...


class SharedChunks(Generic[R]):
    """The chunks of a task, and who does which."""

    def __init__(self, chunks: Sequence[Chunk], twin: Twin, work: ChunkWork[R]) -> None:
        self._chunks = chunks
        self._twin = twin
        self._work = work
        self._asked: deque[int] = deque()
        """The chunks that the twin has, or _WRITE, in the order of its answers."""
        self._ahead: tuple[int, R] | None = None
        self._turn = 0
        """The first chunk that was not taken."""
        self._free = 0
        """The first chunk that nobody has looked at, or was asked to."""
        self._seen = -1
        """The last chunk that was looked at here."""

    def run(self) -> int:
        """Return how many chunks were taken: fewer than all if the twin is of no more use.

        Raise TwinGone if the twin has ended, and has not written everything.
        """
        try:
            while self._turn < len(self._chunks) and not self._work.is_over and self._step():
                pass
        except TwinGone:
            if _WRITE in self._asked:
                raise
            self._asked.clear()
        while _WRITE in self._asked:
            self._answer()
        if self._seen != self._turn - 1:
            self._work.drop_rest()
        return self._turn

    def _step(self) -> bool:
        """Do what is best now; return False if the twin is of no more use."""
        if self._turn == self._free:
            return self._do_next()
        self._ask_twin()
        if self._ahead is not None and self._ahead[0] == self._turn:
            found, self._ahead = self._ahead[1], None
            return self._take(found)
        if self._ahead is None and not self._twin.is_ready() and self._may_be_ahead(self._free):
            return self._look_ahead()
        if self._asked[0] == _WRITE:
            self._answer()
            return True
        answered = self._answer() if self._twin.is_ready_soon() else None
        return answered is not None and self._take(answered)

    def _do_next(self) -> bool:
        """Do the chunk whose turn it is here, and let the twin begin with others."""
        self._free += 1
        self._ask_twin()
        self._seen = self._turn
        self._work.do(self._chunks[self._turn])
        self._turn += 1
        return not (self._chunks[self._seen].ends_batch and self._work.has_rest)

    def _look_ahead(self) -> bool:
        self._seen = self._free
        found = self._work.look_ahead(self._chunks[self._free])
        if found is None or self._work.has_rest:
            return False
        self._ahead = self._free, found
        self._free += 1
        return True

    def _may_be_ahead(self, number: int) -> bool:
        return number < len(self._chunks) and self._chunks[number].place is not None

    def _ask_twin(self) -> None:
        while self._may_be_ahead(self._free) and (
            len(self._asked) - self._asked.count(_WRITE) < _MOST_ASKED
        ):
            self._asked.append(self._free)
            self._twin.ask(self._work.request(self._chunks[self._free]))
            self._free += 1

    def _answer(self) -> R | None:
        answer = self._twin.answer()
        if self._asked.popleft() == _WRITE:
            self._work.written(answer)
            return None
        return self._work.found_by_twin(answer)

    def _take(self, found: R) -> bool:
        request = self._work.take(found)
        if request is None:
            return False
        if request:
            self._asked.append(_WRITE)
            self._twin.ask(request)
        self._turn += 1
        return True
