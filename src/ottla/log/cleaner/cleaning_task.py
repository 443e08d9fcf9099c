"""The tasks of a clean in a helper process: each takes a message and returns one.

    begin     start a clean: settings, active producers, aborted transactions
    map       a chunk of the dirty part, for the first pass: its bytes, or where to read them
    segment   begin the output of a new segment
    filter    a chunk for the second pass, likewise; returns what stays and its index entries
    finish    the last entry of the time index of the output
    ping      keep the process alive while the clean waits
    end       forget the clean

A clean is known by its id. If the process ended in between, the id is not known, and the answer
says so: the clean fails and is begun again. Damage in the log is an answer too, and so is that a
file cannot be read here: the broker reads it then, and deals with the error if there is one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from ottla.log.cleaner.cleaning_session import CleaningSession, Fill
from ottla.log.cleaner.task_messages import pack, unpack
from ottla.ports import Buffer, HelperFiles, SharedFile
from ottla.records.batch import CorruptBatch

TASK: Final = "ottla.log.cleaner.cleaning_task:run"
_MOST_SESSIONS: Final = 16
_sessions: dict[str, CleaningSession] = {}


def run(data: Buffer) -> bytes:
    """Do one task."""
    fields, parts = unpack(data)
    name, clean_id = fields.pop("task"), fields.pop("clean")
    if name == "begin":
        while len(_sessions) >= _MOST_SESSIONS:
            _sessions.pop(next(iter(_sessions))).close_file()
        _sessions[clean_id] = CleaningSession(fields, *parts)
        return pack({})
    if name == "end":
        if (ended := _sessions.pop(clean_id, None)) is not None:
            ended.close_file()
        return pack({})
    session = _sessions.get(clean_id)
    if session is None:
        return pack({"lost": "the helper process was started again meanwhile"})
    try:
        return _TASKS[name](session, fields, parts)
    except OSError as error:
        return pack({"unread": str(error)})
    except CorruptBatch as damage:
        return pack({"damage": damage.reason, "position": damage.position})
    except IndexError:  # a number of a record goes beyond the end of its batch
        return pack({"damage": "a record ends in the middle", "position": 0})


def _map(session: CleaningSession, fields: dict[str, Any], parts: list[memoryview]) -> bytes:
    if fields["is_first"]:
        session.begin_input(*fields.get("offsets", ()))
    session.add_keys(*_chunk(session, fields, parts), fields["left"])
    return pack(
        {
            "latest_offset": session.latest_offset,
            "is_full": session.is_full,
            "keys": len(session.offsets),
            "utilization": session.offsets.utilization,
        }
    )


def _chunk(
    session: CleaningSession, fields: dict[str, Any], parts: list[memoryview]
) -> tuple[int, Fill]:
    """Return the size of a chunk, and what writes its bytes."""
    if parts:
        return len(parts[0]), partial(_copy, parts[0])
    if fields["is_first"] or session.file is None:
        session.close_file()
        if HelperFiles.open is None:
            raise FileNotFoundError("there are no files here")
        session.file = HelperFiles.open(fields["path"])
    return fields["size"], partial(_read, session.file, fields["position"])


def _copy(chunk: memoryview, target: memoryview) -> None:
    target[:] = chunk


def _read(file: SharedFile, position: int, target: memoryview) -> None:
    if file.read_into(target, position) < len(target):
        raise CorruptBatch(0, "the file is shorter than it was")


def _segment(session: CleaningSession, fields: dict[str, Any], parts: list[memoryview]) -> bytes:
    if fields["is_first"]:
        session.end_first_pass()
    session.begin_segment(fields["base_offset"])
    return pack({})


def _filter(session: CleaningSession, fields: dict[str, Any], parts: list[memoryview]) -> bytes:
    if fields["is_first"]:
        session.begin_input(*fields.get("offsets", ()))
    chunk = _chunk(session, fields, parts)
    session.filter(*chunk, fields["left"], fields["latest_offset"])
    return pack({}, *session.output.take(), session.take_aborted())


def _finish(session: CleaningSession, fields: dict[str, Any], parts: list[memoryview]) -> bytes:
    session.output.add_time_entry()
    fields = {
        "max_timestamp": session.output.max_timestamp,
        "max_timestamp_offset": session.output.max_timestamp_offset,
        "size": session.output.size,
        "records_read": session.records_read,
        "records_kept": session.records_kept,
    }
    return pack(fields, session.output.take()[2])


def _ping(session: CleaningSession, fields: dict[str, Any], parts: list[memoryview]) -> bytes:
    return pack({})


_TASKS: Final[dict[str, Callable[[CleaningSession, dict[str, Any], list[memoryview]], bytes]]] = {
    "map": _map,
    "segment": _segment,
    "filter": _filter,
    "finish": _finish,
    "ping": _ping,
}
