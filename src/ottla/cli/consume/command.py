"""`ottla consume`: messages of a topic, from a chosen place on."""

from __future__ import annotations

import signal
import sys
import time
from typing import Annotated, NamedTuple

from cyclopts import Parameter
from cyclopts.types import NonNegativeInt, PositiveInt

from ottla.admin.client import Client
from ottla.admin.consuming import Consumer, start_offsets
from ottla.admin.offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from ottla.admin.route import check_partition, find_route
from ottla.cli.consume.message_format import Writer, format_writer, json_writer, value_writer
from ottla.cli.consume.message_output import MessageOutput
from ottla.cli.errors import OK, UsageError
from ottla.cli.options import BootstrapServer, CommandConfig, connect
from ottla.cli.output import counted
from ottla.cli.times import timestamp_ms

POLL_MS = 500
_ALL: list[int] = []


def consume(
    topic: Annotated[str, Parameter(help="The topic to read.")],
    *,
    from_beginning: Annotated[
        bool, Parameter(help="Start with the oldest message.", show_default=False)
    ] = False,
    offset: Annotated[
        str | None,
        Parameter(
            help="Start here: an offset, earliest, latest, or -N for the last N of each partition.",
            allow_leading_hyphen=True,
        ),
    ] = None,
    timestamp: Annotated[
        str | None,
        Parameter(help="Start here: 2026-01-31T12:00:00, or milliseconds since 1970."),
    ] = None,
    partition: Annotated[
        list[NonNegativeInt],
        Parameter(help="Read this partition only; may be repeated.", show_default=False),
    ] = _ALL,
    max_messages: Annotated[
        PositiveInt | None, Parameter(help="End after this many messages.")
    ] = None,
    timeout_ms: Annotated[
        PositiveInt | None, Parameter(help="End when no message came for this long.")
    ] = None,
    format: Annotated[
        str | None,
        Parameter(
            help="Write messages like this: {topic} {partition} {offset} {timestamp} {key}"
            " {value} {headers}, with \\t and \\n."
        ),
    ] = None,
    json: Annotated[
        bool, Parameter(help="Write one JSON object a line.", show_default=False)
    ] = False,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
) -> int:
    """Write the messages of a topic to stdout, and those that come, until Ctrl-C.

    Starts with new messages unless told otherwise. Messages of open and aborted
    transactions are shown too. A count follows on stderr.
    """
    start = _start(from_beginning, offset, timestamp)
    writer = _writer(topic, format, json)
    with connect(bootstrap_server, command_config) as client:
        positions = _positions(client, topic, partition, start)
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # as clean an end as Ctrl-C
        consumer = Consumer(client, topic, positions, _tell_of_jump)
        _follow(consumer, MessageOutput(writer, max_messages), timeout_ms)
    return OK


class _Start(NamedTuple):
    """Where to begin: a point in time (or a special timestamp), then so many messages before."""

    timestamp: int
    offset: int | None = None
    back: int = 0


def _start(from_beginning: bool, offset: str | None, timestamp: str | None) -> _Start:
    if from_beginning + (offset is not None) + (timestamp is not None) > 1:
        raise UsageError("give only one of --from-beginning, --offset and --timestamp")
    if from_beginning or offset == "earliest":
        return _Start(EARLIEST_TIMESTAMP)
    if timestamp is not None:
        return _Start(timestamp_ms(timestamp, "--timestamp"))
    if offset is None or offset == "latest":
        return _Start(LATEST_TIMESTAMP)
    try:
        number = int(offset)
    except ValueError:
        raise UsageError(f"--offset {offset!r} should be a number, earliest or latest") from None
    if number < 0:
        return _Start(LATEST_TIMESTAMP, back=-number)
    return _Start(LATEST_TIMESTAMP, offset=number)


def _writer(topic: str, text: str | None, as_json: bool) -> Writer:
    if text is not None and as_json:
        raise UsageError("give only one of --format and --json")
    if as_json:
        return json_writer(topic)
    return value_writer if text is None else format_writer(text, topic)


def _positions(client: Client, topic: str, partitions: list[int], start: _Start) -> dict[int, int]:
    deadline = client.deadline(f"finding where to start in {topic}")
    route = find_route(client, topic, deadline)
    for partition in partitions:
        check_partition(route, partition)
    wanted = partitions or list(route.leaders)
    if start.offset is not None:
        return dict.fromkeys(wanted, start.offset)
    offsets = start_offsets(client, topic, wanted, start.timestamp, deadline)
    if start.back:
        earliest = start_offsets(client, topic, wanted, EARLIEST_TIMESTAMP, deadline)
        offsets = {p: max(earliest[p], at - start.back) for p, at in offsets.items()}
    return offsets


def _follow(consumer: Consumer, output: MessageOutput, timeout_ms: int | None) -> None:
    """Write messages until one of the limits, Ctrl-C, or the end of the reader."""
    patience_ms = POLL_MS if timeout_ms is None else min(timeout_ms, POLL_MS)
    last = time.monotonic()
    try:
        while not output.is_full and not output.is_abandoned:
            arrived = consumer.poll(patience_ms)
            for fetched in arrived:
                output.write(fetched)
            now = time.monotonic()
            if arrived:
                last = now
            elif timeout_ms is not None and now - last >= timeout_ms / 1000:
                break
    except KeyboardInterrupt:
        pass
    finally:
        consumer.close()
    print(counted(output.count, "message"), file=sys.stderr)


def _tell_of_jump(partition: int, position: int, nearest: int) -> None:
    print(
        f"partition {partition}: offset {position} is not there, going on at {nearest}",
        file=sys.stderr,
    )
