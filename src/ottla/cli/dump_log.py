"""`ottla dump-log`: what the files of a log hold, and where they are damaged.

Reads files that Ottla or Apache Kafka wrote. Nothing is changed, nothing is locked: a broker
may be running on the directory.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Annotated, Final

from cyclopts import Parameter

from ottla.cli.dump_findings import Damage, Finding
from ottla.cli.dump_index import offset_index_findings, time_index_findings, txn_index_findings
from ottla.cli.dump_print import JsonPrinter, Printer, TablePrinter
from ottla.cli.dump_records import Decoder, key_and_value, metadata_record
from ottla.cli.dump_segment import segment_findings
from ottla.cli.dump_source import Source
from ottla.cli.dump_state import (
    json_findings,
    leader_epoch_findings,
    offset_checkpoint_findings,
    properties_findings,
    snapshot_findings,
)
from ottla.cli.errors import FAILED, OK, USAGE, UsageError, complain
from ottla.cli.options import Json
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


def dump_log(
    files: Annotated[list[str], Parameter(help="Files of a log, or directories of them.")],
    /,
    *,
    deep: Annotated[
        bool, Parameter(help="Show the records of each batch.", show_default=False)
    ] = False,
    cluster_metadata_decoder: Annotated[
        bool,
        Parameter(
            help="Decode records as those of the cluster's metadata; implies --deep.",
            show_default=False,
        ),
    ] = False,
    offsets: Annotated[
        bool,
        Parameter(
            name=("--offsets", "--offsets-decoder"),
            help="Decode records as those of groups and their offsets; implies --deep.",
            show_default=False,
        ),
    ] = False,
    verify_only: Annotated[
        bool,
        Parameter(
            name=("--verify-only", "--index-sanity-check"),
            help="Check everything and show only damage and totals.",
            show_default=False,
        ),
    ] = False,
    recursive: Annotated[
        bool,
        Parameter(
            name=("--recursive", "-r"),
            help="Go into directories of directories.",
            show_default=False,
        ),
    ] = False,
    json: Json = False,
) -> int:
    """Show what segments, indexes, snapshots and checkpoints hold, and where they are damaged.

    Ends with 1 if a file is damaged, with 2 if one cannot be opened.
    """
    if cluster_metadata_decoder and offsets:
        raise UsageError("give only one of --cluster-metadata-decoder and --offsets")
    return dump(
        files,
        deep=deep,
        cluster_metadata=cluster_metadata_decoder,
        offsets=offsets,
        verify_only=verify_only,
        recursive=recursive,
        as_json=json,
    )


def dump(
    paths: Sequence[str],
    *,
    deep: bool = False,
    cluster_metadata: bool = False,
    offsets: bool = False,
    verify_only: bool = False,
    recursive: bool = False,
    as_json: bool = False,
) -> int:
    """Show the files and those in the directories; 0 if all are sound, 1 if not, 2 if unusable."""
    problems = [problem for path in paths if (problem := _problem(path)) is not None]
    if problems:
        for problem in problems:
            complain(problem)
        return USAGE
    decode = _decoder(deep, cluster_metadata, offsets)
    printer: Printer
    if as_json:
        printer = JsonPrinter(rows=not verify_only)
    else:
        printer = TablePrinter(rows=not verify_only, deep=decode is not None)
    damages = [_dump_file(path, decode, printer) for path in _files(paths, recursive)]
    return FAILED if any(damages) else OK


def _decoder(deep: bool, cluster_metadata: bool, offsets: bool) -> Decoder | None:
    """How records are shown; None if they are not."""
    if cluster_metadata:
        return metadata_record
    if offsets:
        from ottla.cli.dump_offsets import offsets_record

        return offsets_record
    return key_and_value if deep else None


def _problem(path: str) -> str | None:
    """Why a path cannot be shown, or None."""
    if os.path.isdir(path):
        return None
    try:
        with Source(path):
            pass
    except OSError as error:
        return f"{path}: {error.strerror}"
    if _kind(path) is None:
        known = ", ".join(
            (*_KINDS, *_PROPERTIES, file_names.LEADER_EPOCHS, f"*{_OFFSET_CHECKPOINT}")
        )
        return f"{path}: its name is not one of a log's files ({known})"
    return None


def _files(paths: Sequence[str], recursive: bool) -> Iterator[str]:
    for path in paths:
        if not os.path.isdir(path):
            yield path
            continue
        for directory, below, found in os.walk(path):
            below.sort()
            if not recursive:
                below.clear()
            for name in sorted(found):
                if _kind(name) is not None:
                    yield os.path.join(directory, name)


def _kind(path: str) -> str | None:
    """What a file is, going by its name, or None if it is none of a log's."""
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
    """The file's name without the ending it has for a while before it goes or comes."""
    name = os.path.basename(path)
    for ending in _TEMPORARY:
        name = name.removesuffix(ending)
    return name


def _dump_file(path: str, decode: Decoder | None, printer: Printer) -> bool:
    """Show one file; whether it is damaged."""
    damaged = False
    with ExitStack() as stack:
        try:
            source = stack.enter_context(Source(path))
        except FileNotFoundError:
            return False  # it was listed a moment ago: retention took it
        kind = _kind(path)
        assert kind is not None
        printer.begin(path, kind, source.size)
        for finding in _readable(source, _findings(kind, source, decode, stack)):
            damaged = damaged or isinstance(finding, Damage)
            printer.show(finding)
        printer.end()
    return damaged


def _readable(source: Source, findings: Iterator[Finding]) -> Iterator[Finding]:
    """The findings, the last of them being that the disk does not give more."""
    try:
        yield from findings
    except OSError as error:
        yield Damage(0, f"cannot be read: {error}", source.size)


def _findings(
    kind: str, source: Source, decode: Decoder | None, stack: ExitStack
) -> Iterator[Finding]:
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
    """The segment an index is for, with the same temporary ending if it has one."""
    directory, name = os.path.split(source.path)
    lasting = _lasting_name(name)
    ending = name.removeprefix(lasting)
    path = os.path.join(directory, os.path.splitext(lasting)[0] + file_names.LOG + ending)
    try:
        return stack.enter_context(Source(path))
    except FileNotFoundError:
        return None
