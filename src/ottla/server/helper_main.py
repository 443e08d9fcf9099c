"""The program of a helper process: takes tasks from the broker, one after the other.

Standard input is a socket to the broker. A frame of the broker is the lengths of a task's name
and of its data, then both; a frame of the helper is whether the task succeeded and a length,
then the result or the error. The process ends when the broker closes the socket, or is gone.

Little is imported before the first task says what it needs.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from errno import ESRCH
from functools import partial
from io import FileIO
from queue import SimpleQueue
from struct import Struct
from typing import Final, TypeVar, cast

from ottla.ports import Buffer, HelperFiles, HelperPace, SecondThread, run_task
from ottla.server.giving_way import give_way

T = TypeVar("T")

TASK_HEAD: Final = Struct(">II")
RESULT_HEAD: Final = Struct(">?I")
_SOCKET: Final = 0
_NEW_OBJECTS: Final = 50_000
"""After how many new objects garbage is collected. Tasks make many, and hardly any cycles."""
_GRACE_S: Final = 5
_MOST_BUFFERS: Final = 1024
"""How many buffers one write may have (IOV_MAX)."""
_CALL_BYTES: Final = 256 * 1024
"""How much one call reads or writes while clients are served.

Linux may let nobody else have the processor before the call ends.
"""
_DISK_BYTES: Final = 1024 * 1024
"""The system begins to write to disk after this many bytes, if it does so early."""


def main() -> None:
    """Serve until the broker is gone; the argument is the time limit of a task in seconds."""
    limit_s = int(sys.argv[1])
    give_way()
    gc.set_threshold(_NEW_OBJECTS)
    HelperFiles.open = OpenFile
    HelperFiles.open_output = partial(OutputFile, os.getppid())
    SecondThread.start = Beside().start
    while (head := _read(TASK_HEAD.size)) is not None:
        name_length, data_length = TASK_HEAD.unpack(head)
        name, data = _read(name_length), _read(data_length)
        if name is None or data is None:
            return
        # The broker ends a task that takes too long. If it is gone, nobody else would.
        signal.alarm(limit_s + _GRACE_S)
        is_done, result = _run(name.decode(), data)
        signal.alarm(0)
        if not _write(RESULT_HEAD.pack(is_done, len(result)) + result):
            return


class OpenFile:
    """A file that a task reads."""

    def __init__(self, path: str) -> None:
        self._file = FileIO(path)

    def read_into(self, target: memoryview, position: int) -> int:
        """Fill `target` from a position on; return how many bytes there were."""
        filled = 0
        while filled < len(target):
            self._file.seek(position + filled)
            end = filled + _CALL_BYTES if HelperPace.beside_clients else len(target)
            count = self._file.readinto(target[filled:end])
            if not count:
                break
            filled += count
        return filled

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class OutputFile:
    """A file that a task writes. The broker has created it, and forces it to disk."""

    def __init__(self, broker: int, path: str) -> None:
        if os.getppid() != broker:  # another broker may use the same names by now
            raise ProcessLookupError(ESRCH, "the broker is gone")
        self._fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        self._size = self._begun = 0
        """How much was written, and how much of it the system has begun to write to disk."""

    def write(self, buffers: Sequence[Buffer]) -> None:
        """Append these bytes."""
        some: list[Buffer] = []
        size = 0
        for each in _pieces(buffers) if HelperPace.beside_clients else buffers:
            some.append(each)
            size += len(each)
            if len(some) == _MOST_BUFFERS or (HelperPace.beside_clients and size >= _CALL_BYTES):
                self._append(some)
                some, size = [], 0
        if some:
            self._append(some)

    def _append(self, buffers: list[Buffer]) -> None:
        size = sum(map(len, buffers))
        left = size - os.writev(self._fd, buffers)
        if left:
            rest = memoryview(b"".join(buffers))[-left:]
            while rest:
                rest = rest[os.write(self._fd, rest) :]
        self._size += size
        is_early = HelperPace.beside_clients or HelperPace.stores_soon
        if is_early and self._size - self._begun >= _DISK_BYTES:
            _begin_to_store(self._fd, self._begun, self._size - self._begun)
            self._begun = self._size

    def close(self) -> None:
        """Close the file."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


def _pieces(buffers: Sequence[Buffer]) -> Iterator[Buffer]:
    """Yield the same bytes in buffers that are not too large for one call."""
    for buffer in buffers:
        with memoryview(buffer) as view:
            for start in range(0, len(view), _CALL_BYTES):
                yield view[start : start + _CALL_BYTES]


def _begin_to_store(fd: int, position: int, length: int) -> None:
    """Have the system begin to write a range to disk, and do not wait for it.

    The sync at the end is short then, and does not hold up writes to other files. Linux begins when
    it is told to forget the range. What is not on disk yet stays in memory.
    """
    if sys.platform == "linux":
        os.posix_fadvise(fd, position, length, os.POSIX_FADV_DONTNEED)


class Beside:
    """The second thread of this process, which begins with the first work for it."""

    def __init__(self) -> None:
        self._work: SimpleQueue[Callable[[], None]] | None = None

    def start(self, work: Callable[[], T]) -> Callable[[], T]:
        """Do some work in the thread; return what waits for its result, or raises its error."""
        if self._work is None:
            from threading import Thread

            self._work = SimpleQueue()
            Thread(target=_work_through, args=(self._work,), daemon=True).start()
        results: SimpleQueue[tuple[T, None] | tuple[None, BaseException]] = SimpleQueue()

        def run() -> None:
            try:
                results.put((work(), None))
            except BaseException as error:
                results.put((None, error))

        def wait() -> T:
            result, error = results.get()
            if error is not None:
                raise error
            return cast(T, result)

        self._work.put(run)
        return wait


def _work_through(queue: SimpleQueue[Callable[[], None]]) -> None:
    while True:
        queue.get()()


def _run(name: str, data: bytearray) -> tuple[bool, bytes]:
    try:
        return True, run_task(name, data)
    except Exception as error:  # whatever it is, it is the broker that deals with it
        return False, f"{type(error).__name__}: {error}".encode()


def _read(length: int) -> bytearray | None:
    """Return exactly this many bytes; None if the broker is gone."""
    data = bytearray(length)
    view, filled = memoryview(data), 0
    while filled < length:
        try:
            count = os.readv(_SOCKET, [view[filled:]])
        except ConnectionError:
            return None
        if not count:
            return None
        filled += count
    return data


def _write(data: bytes) -> bool:
    """Write all of it; False if the broker is gone."""
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(_SOCKET, view) :]
        except (ConnectionError, BrokenPipeError):
            return False
    return True


if __name__ == "__main__":
    main()
