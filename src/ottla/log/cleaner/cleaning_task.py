"""The tasks of a clean in a helper process: each takes a message and returns one.

    begin     start a clean: settings, active producers, aborted transactions
    map       a chunk of the dirty part, for the first pass
    segment   begin the output of a new segment
    filter    a chunk for the second pass; returns what stays and its index entries
    finish    the last entry of the time index of the output
    ping      keep the process alive while the clean waits
    end       forget the clean

A clean is known by its id. If the process ended in between, the id is not known, and the answer
says so: the clean fails and is begun again. Damage in the log is an answer too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from ottla.log.cleaner.cleaning_session import CleaningSession
from ottla.log.cleaner.task_messages import pack, unpack
from ottla.ports import Buffer
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
            del _sessions[next(iter(_sessions))]
        _sessions[clean_id] = CleaningSession(fields, *parts)
        return pack({})
    if name == "end":
        _sessions.pop(clean_id, None)
        return pack({})
    session = _sessions.get(clean_id)
    if session is None:
        return pack({"lost": "the helper process was started again meanwhile"})
    try:
        return _TASKS[name](session, fields, parts)
    except CorruptBatch as damage:
        return pack({"damage": damage.reason, "position": damage.position})
    except IndexError:  # a number of a record goes beyond the end of its batch
        return pack({"damage": "a record ends in the middle", "position": 0})


def _map(session: CleaningSession, fields: dict[str, Any], parts: list[memoryview]) -> bytes:
    if fields["is_first"]:
        session.begin_input()
    session.add_keys(bytes(parts[0]), fields["left"])
    return pack(
        {
            "latest_offset": session.latest_offset,
            "is_full": session.is_full,
            "keys": len(session.offsets),
            "utilization": session.offsets.utilization,
        }
    )


def _segment(session: CleaningSession, fields: dict[str, Any], parts: list[memoryview]) -> bytes:
    if fields["is_first"]:
        session.end_first_pass()
    session.begin_segment(fields["base_offset"])
    return pack({})


def _filter(session: CleaningSession, fields: dict[str, Any], parts: list[memoryview]) -> bytes:
    if fields["is_first"]:
        session.begin_input()
    session.filter(bytes(parts[0]), fields["left"], fields["latest_offset"])
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
