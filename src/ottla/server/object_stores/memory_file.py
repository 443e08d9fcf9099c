"""A file in memory that the operating system knows, so that `sendfile` can send from it."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final

from ottla.memory_files import MemoryFiles
from ottla.ports import File
from ottla.server.os_files import file_of

_CALL_BYTES: Final = 64 * 1024
"""How much one system call copies. To copy a mebibyte into new memory may take 2 ms, and a thread
that becomes ready meanwhile may have to wait for the end of the call."""

_memfd_create: Final[Callable[[str], int] | None] = getattr(os, "memfd_create", None)


def memory_file(path: str, content: bytes) -> File:
    """Return a file with this content, whose memory is freed with the last reference to it.

    If the system has no such files (macOS), or allows no more of them, the content stays in the
    memory of this process, and is copied when it is sent.
    """
    file = _new_file(path)
    view = memoryview(content)
    for position in range(0, len(content), _CALL_BYTES):
        file.pwritev([view[position : position + _CALL_BYTES]], position)
    return file


def _new_file(path: str) -> File:
    if _memfd_create is not None:
        try:
            return file_of(path, _memfd_create("ottla"))
        except OSError:
            pass
    return MemoryFiles().open("content", create=True)
