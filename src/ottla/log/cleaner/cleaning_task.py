"""The tasks of a clean in a helper process: each takes a message and returns one.

    begin     start a clean: settings, active producers, aborted transactions
    map       a part of the dirty part, for the first pass: its bytes, or where to read them
    segment   begin the output of a new segment, in a file if its path is given
    filter    a part for the second pass, likewise; returns the index entries of what stays, and
              what stays itself if there is no file for it
    finish    the last entry of the time index of the output
    ping      keep the process alive while the clean waits
    end       forget the clean

Tasks with `beside_clients` use one thread: two would take both processors of a small machine from
the broker and its clients.

A clean is known by its id. If the process ended in between, the id is not known, and the answer
says so: the clean fails and is begun again. Damage in the log is an answer too, and so is that a
file cannot be read or opened here: the broker reads or writes it then, and deals with the error if
there is one. An error of a write is returned with its number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from errno import EIO
from functools import partial
from typing import Any, Final

from ottla.log.cleaner.cleaning_session import Chunk, CleaningSession, Part
from ottla.log.cleaner.plain_session import PlainSession
from ottla.log.cleaner.task_messages import pack, unpack
from ottla.ports import Buffer, HelperFiles, HelperPace, SharedFile
from ottla.records.batch import CorruptBatch

TASK: Final = "ottla.log.cleaner.cleaning_task:run"
ARRAYS_FROM_BYTES: Final = 8 * 1024 * 1024
"""Smaller logs are cleaned without numpy: it takes 0.1 s and 15 MiB of memory to start."""
BUSY_FROM_BYTES: Final = 16 * 1024 * 1024
SMALL_BYTES: Final = 256 * 1024
"""Logs of this size are cleaned with numpy as well once the process has cleaned BUSY_FROM_BYTES."""

_MOST_SESSIONS: Final = 16
_sessions: dict[str, CleaningSession] = {}


class _Work:
    """What this process has done so far."""

    begun_bytes = 0
    """The sizes of all logs whose cleans have begun."""


def run(data: Buffer) -> bytes:
    """Do one task."""
    fields, parts = unpack(data)
    name, clean_id = fields.pop("task"), fields.pop("clean")
    HelperPace.beside_clients = fields.pop("beside_clients", False)
    HelperPace.stores_soon = fields.pop("stores_soon", False)
    if name == "begin":
        while len(_sessions) >= _MOST_SESSIONS:
            _sessions.pop(next(iter(_sessions))).close_files()
        _sessions[clean_id] = new_session(fields, *parts)
        return pack({})
    if name == "end":
        if (ended := _sessions.pop(clean_id, None)) is not None:
            ended.close_files()
        return pack({})
    session = _sessions.get(clean_id)
    if session is None:
        return pack({"lost": "the helper process was started again meanwhile"})
    try:
        return _TASKS[name](session, fields, parts)
    except _Unread as error:
        return pack({"unread": str(error)})
    except OSError as error:
        return pack({"errno": error.errno or EIO, "error": error.strerror or str(error)})
    except CorruptBatch as damage:
        return pack({"damage": damage.reason, "position": damage.position})
    except IndexError:  # a number of a record goes beyond the end of its batch
        return pack({"damage": "a record ends in the middle", "position": 0})


def new_session(fields: dict[str, Any], producers: Buffer, aborted: Buffer) -> CleaningSession:
    """Begin a clean: with arrays if the log is large and numpy is installed."""
    size = fields["bytes"]
    _Work.begun_bytes += size
    is_busy = _Work.begun_bytes >= BUSY_FROM_BYTES
    if size >= (SMALL_BYTES if is_busy else ARRAYS_FROM_BYTES):
        try:
            from ottla.log.cleaner.array_session import ArraySession
        except ImportError:
            pass
        else:
            return ArraySession(fields, producers, aborted)
    return PlainSession(fields, producers, aborted)


class _Unread(OSError):
    """The file cannot be read here. Nothing of the part was looked at."""


def _map(session: CleaningSession, fields: dict[str, Any], parts: list[memoryview]) -> bytes:
    for chunk in _chunks(session, fields, parts):
        session.add_keys(chunk)
        if session.is_full:
            break
    return pack(
        {
            "latest_offset": session.latest_offset,
            "is_full": session.is_full,
            "keys": len(session.offsets),
            "utilization": session.offsets.utilization,
        }
    )


def _chunks(
    session: CleaningSession, fields: dict[str, Any], parts: list[memoryview]
) -> Iterator[Chunk]:
    """Yield the chunks of a part. A part whose bytes came with the task is one chunk.

    The first chunk of the next part is read while the broker sends the next task.
    """
    left: int = fields["left"]
    if fields["is_first"]:
        session.close_input()
        session.begin_input(*fields.get("offsets", ()))
    if parts:
        yield Chunk(len(parts[0]), partial(_copy, parts[0]), left)
        return
    file = _opened(session, fields)
    part = Part(
        fields["position"], fields["size"], fields["chunk"], left, fields.get("latest_offset")
    )
    end = part.position + part.size
    next_part = (min(part.step, left), partial(_read, file, end, False)) if left else None
    for number in range(session.share(part), part.chunks):
        position, size, rest = part.chunk(number)
        following = next_part
        if number + 1 < part.chunks:
            after, following_size, _ = part.chunk(number + 1)
            following = following_size, partial(_read, file, after, True)
        yield Chunk(size, partial(_read, file, position, number > 0), rest, following)


def _opened(session: CleaningSession, fields: dict[str, Any]) -> SharedFile:
    if session.file is None:
        if HelperFiles.open is None:
            raise _Unread("there are no files here")
        try:
            session.file = HelperFiles.open(fields["path"])
        except OSError as error:
            raise _Unread(str(error)) from None
    return session.file


def _copy(chunk: memoryview, target: memoryview) -> None:
    target[:] = chunk


def _read(file: SharedFile, position: int, is_begun: bool, target: memoryview) -> None:
    try:
        count = file.read_into(target, position)
    except OSError as error:
        if is_begun:  # it is too late to send the bytes of the whole part
            raise
        raise _Unread(str(error)) from None
    if count < len(target):
        raise CorruptBatch(0, "the file is shorter than it was")


def _segment(session: CleaningSession, fields: dict[str, Any], parts: list[memoryview]) -> bytes:
    if fields["is_first"]:
        session.end_first_pass()
    session.begin_segment(fields["base_offset"])
    if "path" in fields and HelperFiles.open_output is not None:
        try:
            session.output_file = HelperFiles.open_output(fields["path"])
        except OSError:
            pass  # the broker writes, and deals with the error if there is one
    return pack({})


def _filter(session: CleaningSession, fields: dict[str, Any], parts: list[memoryview]) -> bytes:
    before, batches = session.output.size, b""
    for chunk in _chunks(session, fields, parts):
        session.filter(chunk, fields["latest_offset"])
        kept = session.output.take_batches()
        if session.output_file is not None:
            session.write(kept)
        else:
            batches += b"".join(kept)
    session.finish_writes()
    entries = session.output.take_entries()
    written = session.output.size - before
    return pack({"size": written}, batches, *entries, session.take_aborted())


def _finish(session: CleaningSession, fields: dict[str, Any], parts: list[memoryview]) -> bytes:
    session.output.add_time_entry()
    fields = {
        "max_timestamp": session.output.max_timestamp,
        "max_timestamp_offset": session.output.max_timestamp_offset,
        "size": session.output.size,
        "unchanged_bytes": session.output.unchanged_bytes,
        "records_read": session.records_read,
        "records_kept": session.records_kept,
    }
    session.close_output()
    return pack(fields, session.output.take_entries()[1])


def _ping(session: CleaningSession, fields: dict[str, Any], parts: list[memoryview]) -> bytes:
    return pack({})


_TASKS: Final[dict[str, Callable[[CleaningSession, dict[str, Any], list[memoryview]], bytes]]] = {
    "map": _map,
    "segment": _segment,
    "filter": _filter,
    "finish": _finish,
    "ping": _ping,
}
