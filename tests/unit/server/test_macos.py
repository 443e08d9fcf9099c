"""What differs on macOS, with the system's calls replaced."""

from __future__ import annotations

import fcntl
import os
import resource
import select
import socket
from errno import EINVAL, EIO, ENOTSUP
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

from ottla.config.listeners import Endpoint
from ottla.server import file_limit, os_files, socket_stream
from ottla.server.listener import Listener
from ottla.server.os_files import DirectoryInUse, OsFiles, lock_directory
from ottla.server.socket_stream import SocketStream
from ottla.server.waker import Waker

F_FULLFSYNC = 51


@pytest.fixture
def errors(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the errors that F_FULLFSYNC gives, one after the other; 0 is success."""
    errors: list[int] = []
    system_fcntl = fcntl.fcntl

    def fake_fcntl(fd: int, command: int, *rest: int) -> object:
        if command != F_FULLFSYNC:
            return system_fcntl(fd, command, *rest)
        code = errors.pop(0)
        if code:
            raise OSError(code, os.strerror(code))
        return 0

    monkeypatch.setattr(fcntl, "F_FULLFSYNC", F_FULLFSYNC, raising=False)
    monkeypatch.setattr(fcntl, "fcntl", fake_fcntl)
    monkeypatch.delattr(os, "pwritev")
    monkeypatch.delattr(os, "fdatasync")
    return errors


def test_a_sync_is_a_full_one(errors: list[int], tmp_path: Path) -> None:
    spec = spec_from_file_location("os_files_on_macos", os_files.__file__)
    assert spec is not None
    assert spec.loader is not None
    macos = module_from_spec(spec)
    spec.loader.exec_module(macos)
    file = macos.OsFiles().open(str(tmp_path / "file"), create=True)
    file.pwritev([b"one", bytearray(b"two"), memoryview(b"three")], 2)
    assert file.pread(100, 0) == b"\0\0onetwothree"
    errors += [0, ENOTSUP, EINVAL, EIO, 0]
    for _ in range(3):
        file.sync()  # with fsync, where the file system has no full sync
    with pytest.raises(OSError, match=os.strerror(EIO)):
        file.sync()
    macos.OsFiles().sync_dir(str(tmp_path))
    assert errors == []


def test_the_directory_has_one_lock_where_two_would_exclude_each_other(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("sys.platform", "darwin")

    def refuse(*args: object) -> None:
        raise BlockingIOError(35, "Resource temporarily unavailable")

    monkeypatch.setattr(fcntl, "lockf", refuse)  # as macOS says after flock
    lock = lock_directory(str(tmp_path))
    with pytest.raises(DirectoryInUse, match="in use by another process"):
        lock_directory(str(tmp_path))
    lock.close()
    lock_directory(str(tmp_path)).close()


@pytest.mark.parametrize(
    ("limits", "largest", "expected"),
    [
        ((256, resource.RLIM_INFINITY), 10_240, [(10_240, resource.RLIM_INFINITY)]),
        ((256, resource.RLIM_INFINITY), 1 << 20, [(1 << 20, resource.RLIM_INFINITY)]),
        ((256, 1024), 1024, [(1024, 1024)]),
        ((1024, 1024), 1024, []),
        ((20_000, resource.RLIM_INFINITY), 10_240, []),
        ((resource.RLIM_INFINITY, resource.RLIM_INFINITY), 1, []),
        ((256, resource.RLIM_INFINITY), 100, []),
    ],
)
def test_as_many_open_files_as_the_system_allows(
    limits: tuple[int, int],
    largest: int,
    expected: list[tuple[int, int]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[tuple[int, int]] = []

    def set_limit(kind: int, wanted: tuple[int, int]) -> None:
        if wanted[0] > largest:
            raise ValueError("current limit exceeds maximum limit")
        made.append(wanted)

    monkeypatch.setattr(resource, "getrlimit", lambda kind: limits)
    monkeypatch.setattr(resource, "setrlimit", set_limit)
    file_limit.raise_file_limit()
    assert made == expected
    assert 0 < file_limit.file_limit() <= 1 << 20


@pytest.mark.parametrize("has_eventfd", [True, False])
def test_the_loop_is_woken_up(has_eventfd: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not has_eventfd:
        monkeypatch.delattr(os, "eventfd")
    waker = Waker()
    poll = select.poll()
    poll.register(waker.fd, select.POLLIN)
    assert poll.poll(0) == []
    for _ in range(100_000 if not has_eventfd else 3):  # more than a pipe holds
        waker.wake()
    assert poll.poll(0) == [(waker.fd, select.POLLIN)]
    while poll.poll(0):
        waker.clear()
    waker.clear()
    assert not os.get_inheritable(waker.fd)
    waker.close()


@pytest.mark.parametrize("has_sendfile", [True, False])
def test_files_are_sent(
    has_sendfile: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if not has_sendfile:
        monkeypatch.setattr(socket_stream, "_sendfile", None)
    file = OsFiles().open(str(tmp_path / "file"), create=True)
    content = bytes(range(256)) * 40_000
    file.pwritev([content], 0)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        stream = SocketStream(ours)
        received = b""
        position = 100
        while position < len(content):
            try:
                position += stream.send_file(file, position, len(content) - position)
            except BlockingIOError:
                received += theirs.recv(1 << 20)
        while len(received) < len(content) - 100:
            received += theirs.recv(1 << 20)
    assert received == content[100:]


def test_a_peer_that_is_gone_before_it_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    listener = Listener(Endpoint("PLAINTEXT", "127.0.0.1", 0), -1, -1)
    listener.listen()

    class Gone(socket.socket):
        def setsockopt(self, *args: object) -> None:
            raise OSError(EINVAL, "Invalid argument")

    with socket.create_connection(("127.0.0.1", listener.port)):
        monkeypatch.setattr("socket.socket", Gone)
        assert select.select([listener.fd], [], [], 10)[0]
        assert listener.accept() is None
    listener.close()
