"""`ottla log-dirs`: the log directories of brokers, and the logs in them."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from ottla.cli.errors import FAILED, OK, DataError, complain
from ottla.cli.options import BootstrapServer, CommandConfig, Json, connect
from ottla.cli.output import Column, JsonValue, print_headline, print_json, print_table
from ottla.cli.sizes import ratio_text, size_text, time_text
from ottla.client.cluster import Client
from ottla.client.topics.log_sizes import (
    DirectoryDescription,
    LogDescription,
    describe_log_dirs,
)
from ottla.client.topics.topics import describe_topics
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition

_COLUMNS = [
    Column("topic"),
    Column("partition", True),
    Column("size", True),
    Column("dirty", True),
    Column("last clean", is_extra=True),
    Column("state"),
]
_NONE: list[str] = []
_ALL: list[int] = []


def log_dirs(
    *,
    topic: Annotated[
        list[str], Parameter(help="Show only logs of this topic. Repeatable.", show_default=False)
    ] = _NONE,
    broker: Annotated[
        list[int],
        Parameter(help="Ask this broker. Repeatable. Default: all brokers.", show_default=False),
    ] = _ALL,
    json: Json = False,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
) -> int:
    """Show the log directories of brokers and the logs in them: sizes and state of compaction.

    `dirty` is for compacted logs: of the bytes that can be cleaned now, the share that was written
    since the last clean. `last clean` is `-` if there was none since the broker started. Brokers
    of Apache Kafka report only sizes.
    """
    with connect(bootstrap_server, command_config) as client:
        partitions = _partitions(client, topic) if topic else None
        deadline = client.deadline("log directories")
        client.metadata([], deadline)
        unknown = sorted(set(broker) - set(client.brokers))
        if unknown:
            raise DataError(f"there is no broker {unknown[0]}; `ottla brokers list` shows all")
        asked = sorted(set(broker) or client.brokers)
        found = list(describe_log_dirs(client, asked, partitions, deadline))
    if json:
        print_json([_as_json(each) for each in found])
    else:
        for each in found:
            _print(each)
    offline = [each for each in found if each.error_code]
    for each in offline:
        complain(f"broker {each.broker} cannot use {each.path}: {_error(each.error_code)}")
    return FAILED if offline else OK


def _partitions(client: Client, topics: list[str]) -> list[TopicPartition]:
    return [
        TopicPartition(found.name, each.partition)
        for found in describe_topics(client, topics)
        for each in found.partitions
    ]


def _print(directory: DirectoryDescription) -> None:
    facts = [f"broker {directory.broker}", directory.path]
    if directory.total_bytes is not None:
        facts.append(
            f"{size_text(directory.usable_bytes)} of {size_text(directory.total_bytes)} free"
        )
    facts.append(f"logs {size_text(sum(log.size for log in directory.logs))}")
    print_headline(facts)
    logs = sorted(directory.logs, key=_by_name)
    columns, rows = _COLUMNS, [_row(log) for log in logs]
    if any(log.remote_size is not None for log in logs):
        columns = [*columns[:3], Column("remote", True), *columns[3:]]
        rows = [
            [*row[:3], "-" if log.remote_size is None else size_text(log.remote_size), *row[3:]]
            for row, log in zip(rows, logs, strict=True)
        ]
    if rows:
        print_table(columns, rows)


def _by_name(log: LogDescription) -> TopicPartition:
    return log.partition


def _row(log: LogDescription) -> list[str]:
    return [
        log.partition.topic,
        str(log.partition.partition),
        size_text(log.size),
        ratio_text(log.dirty_ratio),
        time_text(log.last_clean_ms),
        _state(log),
    ]


def _state(log: LogDescription) -> str:
    if log.is_future:
        return f"moving here, {log.offset_lag} behind"
    if log.uncleanable_reason is not None:
        return f"not cleaned: {log.uncleanable_reason}"
    return f"{log.offset_lag} behind" if log.offset_lag else "-"


def _as_json(directory: DirectoryDescription) -> JsonValue:
    logs: list[JsonValue] = [
        {
            "topic": log.partition.topic,
            "partition": log.partition.partition,
            "size": log.size,
            "remote_size": log.remote_size,
            "offset_lag": log.offset_lag,
            "future": log.is_future,
            "dirty_ratio": log.dirty_ratio,
            "last_clean_ms": log.last_clean_ms,
            "uncleanable": log.uncleanable_reason,
        }
        for log in sorted(directory.logs, key=_by_name)
    ]
    return {
        "broker": directory.broker,
        "log_dir": directory.path,
        "error": _error(directory.error_code) if directory.error_code else None,
        "total_bytes": directory.total_bytes,
        "usable_bytes": directory.usable_bytes,
        "logs": logs,
    }


def _error(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"
