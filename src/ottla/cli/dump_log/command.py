"""`ottla dump-log`: show and check the files of a log.

The command reads files that Ottla or Apache Kafka wrote. It changes nothing and takes no lock,
so a broker may be running on the directory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Annotated

from cyclopts import Parameter

from ottla.cli.dump_log.files import find_problem, findings_of, kind_of, log_files
from ottla.cli.dump_log.findings import Damage, Finding
from ottla.cli.dump_log.printer import JsonPrinter, Printer, TablePrinter
from ottla.cli.dump_log.records import Decoder, key_and_value, metadata_record
from ottla.cli.dump_log.source import Source
from ottla.cli.errors import FAILED, OK, USAGE, UsageError, complain
from ottla.cli.options import Json


def dump_log(
    files: Annotated[list[str], Parameter(help="Files of a log, or directories.")],
    /,
    *,
    deep: Annotated[
        bool, Parameter(help="Show the records of each batch.", show_default=False)
    ] = False,
    cluster_metadata_decoder: Annotated[
        bool,
        Parameter(
            help="Decode records of __cluster_metadata. Implies --deep.",
            show_default=False,
        ),
    ] = False,
    offsets: Annotated[
        bool,
        Parameter(
            name=("--offsets", "--offsets-decoder"),
            help="Decode records of __consumer_offsets: groups and their offsets. Implies --deep.",
            show_default=False,
        ),
    ] = False,
    transactions: Annotated[
        bool,
        Parameter(
            name=("--transactions", "--transaction-log-decoder"),
            help="Decode records of __transaction_state: transactions. Implies --deep.",
            show_default=False,
        ),
    ] = False,
    verify_only: Annotated[
        bool,
        Parameter(
            name=("--verify-only", "--index-sanity-check"),
            help="Check everything, but show only damage and totals.",
            show_default=False,
        ),
    ] = False,
    recursive: Annotated[
        bool,
        Parameter(
            name=("--recursive", "-r"),
            help="Include subdirectories.",
            show_default=False,
        ),
    ] = False,
    json: Json = False,
) -> int:
    """Show the contents of segments, indexes, snapshots and checkpoints, and report damage.

    Exit codes: 0 no damage, 1 a file is damaged, 2 a file cannot be opened.
    """
    if cluster_metadata_decoder + offsets + transactions > 1:
        raise UsageError(
            "give only one of --cluster-metadata-decoder, --offsets and --transactions"
        )
    return dump(
        files,
        deep=deep,
        cluster_metadata=cluster_metadata_decoder,
        offsets=offsets,
        transactions=transactions,
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
    transactions: bool = False,
    verify_only: bool = False,
    recursive: bool = False,
    as_json: bool = False,
) -> int:
    """Show these files, and the files in these directories.

    Return 0 if there is no damage, 1 if a file is damaged, 2 if a path cannot be used.
    """
    problems = [problem for path in paths if (problem := find_problem(path)) is not None]
    if problems:
        for problem in problems:
            complain(problem)
        return USAGE
    decode = _decoder(deep, cluster_metadata, offsets, transactions)
    printer: Printer
    if as_json:
        printer = JsonPrinter(rows=not verify_only)
    else:
        printer = TablePrinter(rows=not verify_only, deep=decode is not None)
    damages = [_dump_file(path, decode, printer) for path in log_files(paths, recursive)]
    return FAILED if any(damages) else OK


def _decoder(
    deep: bool, cluster_metadata: bool, offsets: bool, transactions: bool
) -> Decoder | None:
    """Return the decoder for records, or None if records are not shown."""
    if cluster_metadata:
        return metadata_record
    if offsets:
        from ottla.cli.dump_log.group_offsets import offsets_record

        return offsets_record
    if transactions:
        from ottla.cli.dump_log.transaction_log import transaction_record

        return transaction_record
    return key_and_value if deep else None


def _dump_file(path: str, decode: Decoder | None, printer: Printer) -> bool:
    """Show one file. Return True if it is damaged."""
    damaged = False
    with ExitStack() as stack:
        try:
            source = stack.enter_context(Source(path))
        except FileNotFoundError:
            return False  # retention deleted it after it was listed
        kind = kind_of(path)
        assert kind is not None
        printer.begin(path, kind, source.size)
        for finding in _readable(source, findings_of(kind, source, decode, stack)):
            damaged = damaged or isinstance(finding, Damage)
            printer.show(finding)
        printer.end()
    return damaged


def _readable(source: Source, findings: Iterator[Finding]) -> Iterator[Finding]:
    """Yield the findings, and Damage if the file cannot be read to its end."""
    try:
        yield from findings
    except OSError as error:
        yield Damage(0, f"cannot be read: {error}", source.size)
