"""A copy of a helper process, which does a part of the work of a task, and the way to it.

The copy is made by `fork`, so it begins with all that the process knows. Messages go to it through
a socket, which can carry open files, and back through a pipe, which can be large: neither process
waits often until the other one reads. Numbers to claim are in another pipe that both read.

The copy ends if the process ends, however that happens: its socket is closed then.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final
from warnings import catch_warnings, simplefilter

from ottla.ports import Buffer, CopyEnded, CopyLink, SecondThread, SharedFile, SharedOutput
from ottla.server.helper_files import OpenFile, OutputFile
from ottla.server.helper_pipes import read_exactly

_BROKER: Final = 0
"""The socket to the broker, which must see that it is closed if the process ends."""
_PIPE_BYTES: Final = 1024 * 1024
_NUMBER_BYTES: Final = 2
_NO_NUMBER: Final = b"\xff" * _NUMBER_BYTES


def start_copy(work: Callable[[CopyLink], None]) -> CopyLink:
    """Make a copy of this process that does some work and ends; return the way to it."""
    channels = socket.socketpair()
    results, claims = _pipe(), _pipe()
    with catch_warnings():
        # A second thread may wait for work here. It has no lock that the copy needs.
        simplefilter("ignore", DeprecationWarning)
        try:
            pid = os.fork()
        except OSError:
            for channel in channels:
                channel.close()
            for fd in (*results, *claims):
                os.close(fd)
            raise
    if pid:
        channels[1].close()
        os.close(results[1])
        return Link(channels[0], results[0], channels[0].fileno(), claims, pid)
    try:
        gc.disable()
        channels[0].close()
        os.close(results[0])
        _forget_broker()
        SecondThread.start = None
        with suppress(CopyEnded):
            work(Link(channels[1], channels[1].fileno(), results[1], claims, 0))
    finally:
        os._exit(0)


class Link:
    """One end of the way between both processes; see `ports.CopyLink`."""

    def __init__(
        self,
        channel: socket.socket,
        source: int,
        target: int,
        claims: tuple[int, int],
        pid: int,
    ) -> None:
        self._channel = channel
        self._source, self._target = source, target
        self._claims = claims
        self._pid = pid
        """The copy, 0 in the copy itself."""

    def send(self, parts: Sequence[Buffer]) -> None:
        """Send bytes."""
        size = sum(map(len, parts))
        try:
            left = size - os.writev(self._target, parts)
            if left:
                rest = memoryview(b"".join(parts))[-left:]
                while rest:
                    rest = rest[os.write(self._target, rest) :]
        except ConnectionError:
            raise CopyEnded from None

    def receive(self, size: int) -> bytearray:
        """Wait for so many bytes."""
        data = read_exactly(self._source, size)
        if data is None:
            raise CopyEnded
        return data

    def send_files(self, file: SharedFile, output: SharedOutput | None) -> None:
        """Let the copy have files, in between the bytes."""
        assert isinstance(file, OpenFile)
        fds = [file.fileno()]
        if output is not None:
            assert isinstance(output, OutputFile)
            fds.append(output.fileno())
        try:
            socket.send_fds(self._channel, [b"f"], fds)
        except ConnectionError:
            raise CopyEnded from None

    def receive_files(self) -> tuple[SharedFile, SharedOutput | None]:
        """Return what `send_files` has sent."""
        try:
            _, fds, _, _ = socket.recv_fds(self._channel, 1, 2)
        except ConnectionError:
            raise CopyEnded from None
        if not fds:
            raise CopyEnded
        return OpenFile.of(fds[0]), OutputFile.of(fds[1]) if len(fds) > 1 else None

    def offer(self, count: int) -> None:
        """Let both processes claim the numbers up to before `count`."""
        numbers = [number.to_bytes(_NUMBER_BYTES, "big") for number in range(count)]
        os.write(self._claims[1], b"".join([*numbers, _NO_NUMBER, _NO_NUMBER]))

    def claim(self) -> int | None:
        """Return the next number that neither process has claimed; None if there is none left."""
        number = os.read(self._claims[0], _NUMBER_BYTES)
        return None if number == _NO_NUMBER else int.from_bytes(number, "big")

    def close(self) -> None:
        """End the copy, and wait until it has ended."""
        self._channel.close()
        for fd in (self._source, *self._claims):
            os.close(fd)
        with suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)


def _pipe() -> tuple[int, int]:
    source, target = os.pipe()
    try:
        from fcntl import F_SETPIPE_SZ, fcntl

        fcntl(target, F_SETPIPE_SZ, _PIPE_BYTES)
    except (ImportError, OSError):
        pass  # not everywhere, and there is a limit for each user
    return source, target


def _forget_broker() -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, _BROKER)
    os.close(nothing)
