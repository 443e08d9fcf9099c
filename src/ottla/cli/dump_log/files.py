"""Which files belong to a log, what kind of file each one is, and which reader it needs.

A file's name decides its kind.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Final

from ottla.cli.dump_log.findings import Finding
from ottla.cli.dump_log.index import offset_index_findings, time_index_findings, txn_index_findings
from ottla.cli.dump_log.records import Decoder
from ottla.cli.dump_log.segment import segment_findings
from ottla.cli.dump_log.source import Source
from ottla.cli.dump_log.state_files import (
    json_findings,
    leader_epoch_findings,
    offset_checkpoint_findings,
    properties_findings,
    snapshot_findings,
)
from ottla.log import file_names

_TEMPORARY: Final = (file_names.DELETED, file_names.CLEANED, file_names.SWAP)
_METADATA_SNAPSHOT: Final = ".checkpoint"
_OFFSET_CHECKPOINT: Final = "-offset-checkpoint"
_JSON_FILES: Final = (file_names.CLEAN_SHUTDOWN, "quorum-state")
_PROPERTIES: Final = (file_names.META_PROPERTIES, file_names.PARTITION_METADATA)
_KINDS: Final = {
    file_names.LOG: "segment",
    _METADATA_SNAPSHOT: "metadata snapshot",
    file_names.INDEX: "offset index",
    file_names.TIME_INDEX: "time index",
    file_names.TXN_INDEX: "transaction index",
    file_names.SNAPSHOT: "producer snapshot",
}


def find_problem(path: str) -> str | None:
    """Return why a path cannot be shown, or None."""
    if os.path.isdir(path):
        return None
    try:
        with Source(path):
            pass
    except OSError as error:
        return f"{path}: {error.strerror}"
    if kind_of(path) is None:
        known = ", ".join(
            (*_KINDS, *_PROPERTIES, file_names.LEADER_EPOCHS, f"*{_OFFSET_CHECKPOINT}")
        )
        return f"{path}: the name is not that of a log file ({known})"
    return None


def log_files(paths: Sequence[str], recursive: bool) -> Iterator[str]:
    """Yield these files, and the log files in these directories."""
    for path in paths:
        if not os.path.isdir(path):
            yield path
            continue
        for directory, below, found in os.walk(path):
            below.sort()
            if not recursive:
                below.clear()
            for name in sorted(found):
                if kind_of(name) is not None:
                    yield os.path.join(directory, name)


def kind_of(path: str) -> str | None:
    """Return the kind of a file according to its name, or None if it is not a log file."""
    name = _lasting_name(path)
    suffix = os.path.splitext(name)[1]
    if suffix in _KINDS:
        return _KINDS[suffix]
    if name == file_names.LEADER_EPOCHS:
        return "leader epochs"
    if name.endswith(_OFFSET_CHECKPOINT):
        return "offset checkpoint"
    if name in _PROPERTIES:
        return "properties"
    return "state" if name in _JSON_FILES else None


def _lasting_name(path: str) -> str:
    """Return the file's name without a temporary suffix such as `.deleted`."""
    name = os.path.basename(path)
    for ending in _TEMPORARY:
        name = name.removesuffix(ending)
    return name


def findings_of(
    kind: str, source: Source, decode: Decoder | None, stack: ExitStack
) -> Iterator[Finding]:
    """Return the findings of the reader for this kind of file."""
    base_offset = file_names.offset_of(os.path.basename(source.path))
    match kind:
        case "segment":
            return segment_findings(source, base_offset, decode)
        case "metadata snapshot":
            return segment_findings(source, None, decode)
        case "offset index":
            return offset_index_findings(source, base_offset or 0, _segment_beside(source, stack))
        case "time index":
            return time_index_findings(source, base_offset or 0, _segment_beside(source, stack))
        case "transaction index":
            return txn_index_findings(source, base_offset or 0)
        case "producer snapshot":
            return snapshot_findings(source)
        case "leader epochs":
            return leader_epoch_findings(source)
        case "offset checkpoint":
            return offset_checkpoint_findings(source)
        case "properties":
            return properties_findings(source)
    return json_findings(source)


def _segment_beside(source: Source, stack: ExitStack) -> Source | None:
    """Open the segment of an index file. Its name has the same temporary suffix, if any."""
    directory, name = os.path.split(source.path)
    lasting = _lasting_name(name)
    ending = name.removeprefix(lasting)
    path = os.path.join(directory, os.path.splitext(lasting)[0] + file_names.LOG + ending)
    try:
        return stack.enter_context(Source(path))
    except FileNotFoundError:
        return None
