"""`ottla consume`: print the messages of a topic."""

from __future__ import annotations

import signal
import time
from typing import Annotated, Literal, NamedTuple

from cyclopts import Parameter
from cyclopts.types import NonNegativeInt, PositiveInt

from ottla.cli.consume.message_format import Writer, format_writer, json_writer, value_writer
from ottla.cli.consume.message_output import MessageOutput
from ottla.cli.errors import OK, UsageError, tell
from ottla.cli.options import BootstrapServer, CommandConfig, connect
from ottla.cli.output import counted
from ottla.cli.times import timestamp_ms
from ottla.client.cluster import Client
from ottla.client.consumer.consumer import Consumer, start_offsets
from ottla.client.topics.offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from ottla.client.topics.route import check_partition, find_route

POLL_MS = 500
_ALL: list[int] = []


def consume(
    topic: Annotated[str, Parameter(help="The topic to read.")],
    *,
    from_beginning: Annotated[
        bool, Parameter(help="Start at the oldest message.", show_default=False)
    ] = False,
    offset: Annotated[
        str | None,
        Parameter(
            help="Start at an offset, earliest, latest, or -N for the last N of each partition.",
            allow_leading_hyphen=True,
        ),
    ] = None,
    timestamp: Annotated[
        str | None,
        Parameter(help="Start at a time: 2026-01-31T12:00:00, or milliseconds since 1970."),
    ] = None,
    partition: Annotated[
        list[NonNegativeInt],
        Parameter(help="Read only this partition. Repeatable.", show_default=False),
    ] = _ALL,
    max_messages: Annotated[
        PositiveInt | None, Parameter(help="Stop after this many messages.")
    ] = None,
    timeout_ms: Annotated[
        PositiveInt | None, Parameter(help="Stop if no message arrives for this long.")
    ] = None,
    isolation_level: Annotated[
        Literal["read_uncommitted", "read_committed"],
        Parameter(
            help="With read_committed, messages of aborted transactions are left out, and those of"
            " an open transaction are printed after its end."
        ),
    ] = "read_uncommitted",
    format: Annotated[
        str | None,
        Parameter(
            help="The format of a message, with {topic} {partition} {offset} {timestamp} {key}"
            " {value} {headers} and \\t and \\n."
        ),
    ] = None,
    json: Annotated[
        bool, Parameter(help="Print one JSON object per message.", show_default=False)
    ] = False,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
) -> int:
    """Print a topic's messages, and wait for new ones until Ctrl-C.

    Without a start option, only new messages are printed. The count is printed on stderr at the
    end.
    """
    start = _start(from_beginning, offset, timestamp)
    writer = _writer(topic, format, json)
    with connect(bootstrap_server, command_config) as client:
        read_committed = isolation_level == "read_committed"
        positions = _positions(client, topic, partition, start, read_committed=read_committed)
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # end as cleanly as with Ctrl-C
        consumer = Consumer(client, topic, positions, _report_jump, read_committed=read_committed)
        _follow(consumer, MessageOutput(writer, max_messages), timeout_ms)
    return OK


class _Start(NamedTuple):
    """Where to start: an offset, or a timestamp (maybe a special one) minus `back` messages."""

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


def _positions(
    client: Client, topic: str, partitions: list[int], start: _Start, *, read_committed: bool
) -> dict[int, int]:
    deadline = client.deadline(f"finding where to start in {topic}")
    route = find_route(client, topic, deadline)
    for partition in partitions:
        check_partition(route, partition)
    wanted = partitions or list(route.leaders)
    if start.offset is not None:
        return dict.fromkeys(wanted, start.offset)
    offsets = start_offsets(
        client, topic, wanted, start.timestamp, deadline, read_committed=read_committed
    )
    if start.back:
        earliest = start_offsets(client, topic, wanted, EARLIEST_TIMESTAMP, deadline)
        offsets = {p: max(earliest[p], at - start.back) for p, at in offsets.items()}
    return offsets


def _follow(consumer: Consumer, output: MessageOutput, timeout_ms: int | None) -> None:
    """Write messages until a limit is reached, Ctrl-C, or the reader closes the pipe."""
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
    tell(counted(output.count, "message"))


def _report_jump(partition: int, position: int, nearest: int) -> None:
    tell(f"partition {partition}: offset {position} does not exist, continuing at {nearest}")
