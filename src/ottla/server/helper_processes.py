"""Helper processes: work that takes the processor, next to the broker and never on its loop.

A process is started with the first task and ends when it had nothing to do for a minute, so a
broker without such work has none. A thread hands it one task at a time and waits for the result;
that costs the broker no processor time. A process that ends or takes too long is killed, its task
fails, and the next task starts another one.

The process ends with the broker, however that ends: its socket to the broker is closed then. It
inherits nothing else.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from queue import Empty, SimpleQueue
from struct import Struct
from typing import TYPE_CHECKING, Final

from ottla.model.value import Value
from ottla.ports import Buffer, TaskFailed
from ottla.server.helper_main import BACKGROUND, RESULT_HEAD, TASK_HEAD

if TYPE_CHECKING:
    from subprocess import Popen

TIME_LIMIT_S: Final = 20
IDLE_S: Final = 60
MAX_TASKS: Final = 10_000
MAX_BYTES: Final = 256 * 1024 * 1024
_ENVIRONMENT: Final = {"OPENBLAS_NUM_THREADS": "1"}
"""numpy's linear algebra is not used, and would start a thread for each core."""
_FIRST_BYTES: Final = 64 * 1024
"""How many bytes of a result are received at once with its head. Most results are smaller."""
_TIMEVAL: Final = Struct("@ll")
_BEYOND_LIMIT_US: Final = 100_000
"""A wait for a socket may end a little early, but a task must have had all of its time."""
_PACKAGES: Final = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


class _Task(Value):
    name: str
    data: Buffer
    done: Callable[[bytes | TaskFailed], None]


class HelperProcess:
    """The process of one lane."""

    def __init__(
        self,
        wake_loop: Callable[[], None],
        time_limit_s: int = TIME_LIMIT_S,
        *,
        is_background: bool = False,
    ) -> None:
        self._wake_loop = wake_loop
        self._time_limit_s = time_limit_s
        self._is_background = is_background
        """Whether no client waits for the tasks."""
        self._tasks: SimpleQueue[_Task | None] = SimpleQueue()
        self._finished: deque[tuple[_Task, bytes | TaskFailed]] = deque()
        self._waiting = 0
        """How many tasks were submitted and not delivered, and how many bytes they have."""
        self._waiting_bytes = 0
        self._thread: threading.Thread | None = None
        self._process: Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._is_stopping = False

    @property
    def pid(self) -> int | None:
        """The process id, None if there is no process."""
        process = self._process
        return None if process is None else process.pid

    # -- on the loop ---------------------------------------------------------------------

    def submit(self, task: str, data: Buffer, done: Callable[[bytes | TaskFailed], None]) -> None:
        """Run a task in the process, then `done` on the loop. Raise TaskFailed if too many wait."""
        if self._waiting >= MAX_TASKS or (
            self._waiting and self._waiting_bytes + len(data) > MAX_BYTES
        ):
            raise TaskFailed("too many tasks wait for a helper process")
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="ottla-helper", daemon=True)
            self._thread.start()
        self._waiting += 1
        self._waiting_bytes += len(data)
        self._tasks.put(_Task(task, data, done))

    def deliver(self) -> list[Callable[..., object]]:
        """Hand finished results over; called on the loop. Return what took them."""
        takers: list[Callable[..., object]] = []
        while self._finished:
            task, result = self._finished.popleft()
            self._waiting -= 1
            self._waiting_bytes -= len(task.data)
            takers.append(task.done)
            task.done(result)
        return takers

    def stop(self) -> None:
        """End the process at once. Tasks that are not done are forgotten."""
        self._is_stopping = True
        if self._thread is not None:
            self._tasks.put(None)
            if (process := self._process) is not None:
                process.kill()
            self._thread.join()
            self._thread = None

    # -- in the thread -------------------------------------------------------------------

    def _run(self) -> None:
        while not self._is_stopping:
            try:
                task = self._tasks.get(timeout=None if self._process is None else IDLE_S)
            except Empty:
                self._end_process()
                continue
            if task is not None:
                self._finished.append((task, self._result(task)))
                self._wake_loop()
        self._end_process()

    def _result(self, task: _Task) -> bytes | TaskFailed:
        deadline = 0.0
        try:
            channel = self._started()
            deadline = time.monotonic() + self._time_limit_s
            return self._exchange(channel, task, deadline)
        except Exception as error:  # this thread must go on: others wait for their results
            self._end_process()
            if deadline and time.monotonic() >= deadline:
                return TaskFailed(f"the helper process took more than {self._time_limit_s} s")
            return TaskFailed(f"the helper process failed: {error}")

    def _started(self) -> socket.socket:
        """Return the socket to the process; start one if there is none, or it has ended."""
        if self._process is not None and self._process.poll() is not None:
            self._end_process()
        if self._socket is not None:
            return self._socket
        from subprocess import Popen

        is_background = self._is_background
        arguments = [str(self._time_limit_s), *([BACKGROUND] if is_background else [])]
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                self._process = Popen(
                    [sys.executable, "-m", "ottla.server.helper_main", *arguments],
                    stdin=theirs.fileno(),
                    env={**os.environ, **_ENVIRONMENT, "PYTHONPATH": _python_path()},
                    # An interrupt at the terminal is for the broker: the process has another group.
                    # Linux shares the processor between sessions (autogroup). Work that clients
                    # wait for has a part of the broker's share, other work a small one of its own.
                    start_new_session=is_background,
                    process_group=None if is_background else 0,
                )
            except OSError:
                ours.close()
                raise
        _limit_waits(ours, self._time_limit_s)
        self._socket = ours
        if self._is_stopping:  # `stop` did not see the process yet
            self._process.kill()
        return ours

    def _exchange(self, channel: socket.socket, task: _Task, deadline: float) -> bytes | TaskFailed:
        """Send a task and receive the result.

        With each call of the system the interpreter's lock changes hands, and the loop may have to
        wait for it. So there are few: mostly one to send, and one to receive.
        """
        name = task.name.encode()
        _send(channel, TASK_HEAD.pack(len(name), len(task.data)) + name, task.data, deadline)
        first = channel.recv(_FIRST_BYTES)
        if len(first) < RESULT_HEAD.size:
            first += _receive(channel, RESULT_HEAD.size - len(first), deadline)
        is_done, length = RESULT_HEAD.unpack_from(first)
        result = first[RESULT_HEAD.size :]
        if len(result) < length:
            result += _receive(channel, length - len(result), deadline)
        return result if is_done else TaskFailed(result.decode(errors="replace"))

    def _end_process(self) -> None:
        process, self._process = self._process, None
        channel, self._socket = self._socket, None
        if channel is not None:
            channel.close()
        if process is not None:
            process.kill()
            process.wait()


def _limit_waits(channel: socket.socket, limit_s: int) -> None:
    """Let no single call of a socket wait much longer than a task may take.

    A timeout of Python's needs two calls of the system where one is enough.
    """
    limit = _TIMEVAL.pack(limit_s, _BEYOND_LIMIT_US)
    channel.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
    channel.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)


def _send(channel: socket.socket, head: bytes, data: Buffer, deadline: float) -> None:
    sent = channel.sendmsg([head, data])
    if sent < len(head):
        channel.sendall(head[sent:])
    with memoryview(data) as view:
        at = max(sent - len(head), 0)
        while at < len(view):
            _check(deadline)
            at += channel.send(view[at:])


def _receive(channel: socket.socket, length: int, deadline: float) -> bytearray:
    data = bytearray(length)
    view, filled = memoryview(data), 0
    while filled < length:
        _check(deadline)
        count = channel.recv_into(view[filled:])
        if not count:
            raise ConnectionResetError("it ended")
        filled += count
    return data


def _check(deadline: float) -> None:
    if time.monotonic() >= deadline:
        raise TimeoutError("it takes too long")


def _python_path() -> str:
    """Return PYTHONPATH for a process that finds this very package."""
    inherited = os.environ.get("PYTHONPATH")
    return os.pathsep.join([_PACKAGES, inherited] if inherited else [_PACKAGES])
