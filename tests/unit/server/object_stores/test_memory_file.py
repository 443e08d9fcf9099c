"""Files in memory that sendfile can send from, and those of systems that have none."""

from __future__ import annotations

import os
import socket
import sys

import pytest

from ottla.server.object_stores import memory_file as module
from ottla.server.object_stores.memory_file import memory_file
from ottla.server.socket_stream import SocketStream

CONTENT = bytes(range(256)) * 1000


def no_more(name: str) -> int:
    raise OSError(24, "too many open files")


@pytest.mark.parametrize("create", [module._memfd_create, None, no_more])
def test_its_bytes_are_sent(monkeypatch: pytest.MonkeyPatch, create: object) -> None:
    monkeypatch.setattr(module, "_memfd_create", create)
    file = memory_file("a key", CONTENT)
    assert file.size() == len(CONTENT)
    assert file.pread(10, 250) == CONTENT[250:260]
    ours, theirs = socket.socketpair()
    with ours, theirs:
        sent = SocketStream(ours).send_file(file, 5, 1000)
        assert theirs.recv(2000) == CONTENT[5 : 5 + sent]
        assert sent == 1000


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no memfd")
def test_its_memory_goes_with_the_last_reference() -> None:
    file = memory_file("a key", CONTENT)
    descriptor = file.fileno()
    assert os.fstat(descriptor).st_size == len(CONTENT)
    del file
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)
