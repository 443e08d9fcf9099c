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
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from struct import Struct
from typing import Final, TypeVar, cast

from ottla.ports import CopyLink, HelperCopies, HelperFiles, SecondThread, run_task
from ottla.server.giving_way import give_way
from ottla.server.helper_files import OpenFile, OutputFile
from ottla.server.helper_pipes import read_exactly

T = TypeVar("T")

TASK_HEAD: Final = Struct(">II")
RESULT_HEAD: Final = Struct(">?I")
BACKGROUND: Final = "background"
_SOCKET: Final = 0
_NEW_OBJECTS: Final = 50_000
"""After how many new objects garbage is collected. Tasks make many, and hardly any cycles."""
_GRACE_S: Final = 5


def main() -> None:
    """Serve until the broker is gone.

    The first argument is the time limit of a task in seconds. BACKGROUND follows if no client waits
    for the tasks. Then the process leads a session of its own.
    """
    limit_s = int(sys.argv[1])
    give_way(is_background=BACKGROUND in sys.argv)
    gc.set_threshold(_NEW_OBJECTS)
    HelperFiles.open = OpenFile
    HelperFiles.open_output = partial(OutputFile, os.getppid())
    SecondThread.start = Beside().start
    if _count_processors() > 1:
        HelperCopies.start = _start_copy
    while (head := read_exactly(_SOCKET, TASK_HEAD.size)) is not None:
        name_length, data_length = TASK_HEAD.unpack(head)
        name, data = read_exactly(_SOCKET, name_length), read_exactly(_SOCKET, data_length)
        if name is None or data is None:
            return
        # The broker ends a task that takes too long. If it is gone, nobody else would.
        signal.alarm(limit_s + _GRACE_S)
        is_done, result = _run(name.decode(), data)
        signal.alarm(0)
        if not _write(RESULT_HEAD.pack(is_done, len(result)) + result):
            return


def _start_copy(work: Callable[[CopyLink], None]) -> CopyLink:
    from ottla.server.helper_copy import start_copy

    return start_copy(work)


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


def _count_processors() -> int:
    """Return how many processors this process may run on."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not everywhere
        return os.cpu_count() or 1


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
