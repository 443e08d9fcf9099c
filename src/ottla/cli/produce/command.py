"""`ottla produce`: send the lines of stdin or of a file to a topic."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable
from typing import Annotated, Literal, NamedTuple

from cyclopts import Parameter
from cyclopts.types import NonNegativeInt

from ottla.cli.errors import OK, DataError, UsageError, tell
from ottla.cli.options import BootstrapServer, CommandConfig, Json, connect
from ottla.cli.output import counted, print_json
from ottla.cli.produce.lines import read_lines
from ottla.client.producer.producer import ACKS_ALL, Producer
from ottla.records.compression import CODECS

Codec = Literal["none", "gzip", "snappy", "lz4", "zstd"]
_NONE: list[str] = []


def produce(
    topic: Annotated[
        str, Parameter(help="The topic. It is created if the broker allows automatic creation.")
    ],
    *,
    file: Annotated[
        str | None, Parameter(help="Read messages from this file instead of stdin.")
    ] = None,
    key_separator: Annotated[
        str | None,
        Parameter(
            help="The text between key and value in each line; \\t is a tab.",
            allow_leading_hyphen=True,
        ),
    ] = None,
    header: Annotated[
        list[str],
        Parameter(
            help="A header for every message, as name=value. Repeatable.", show_default=False
        ),
    ] = _NONE,
    compression: Annotated[Codec, Parameter(help="The compression of batches.")] = "none",
    acks: Annotated[
        Literal["all", "1", "0"],
        Parameter(
            help="The acknowledgements to wait for: all in-sync replicas, the leader (1), none (0)."
        ),
    ] = "all",
    partition: Annotated[
        NonNegativeInt | None,
        Parameter(help="Send all messages to this partition. Default: chosen by the key."),
    ] = None,
    json: Json = False,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
) -> int:
    """Send each line of stdin, or of a file, as a message.

    With --acks all the producer is idempotent: no message is lost or stored twice if a broker
    restarts. Keys are assigned to partitions as in Kafka's Java client. The count and the rate
    are printed on stderr.
    """
    template = _Template(_splitter(key_separator), _headers(header), partition)
    descriptor = _open(file)
    started = time.monotonic()
    with connect(bootstrap_server, command_config) as client:
        needed = ACKS_ALL if acks == "all" else int(acks)
        producer = Producer(client, topic, acks=needed, codec=CODECS[compression])
        try:
            _send_lines(producer, descriptor, template)
        finally:
            _report(producer, time.monotonic() - started, json)
    return OK


class _Template(NamedTuple):
    """How to make a message from a line."""

    split: Callable[[bytes, int], tuple[bytes | None, bytes]]
    headers: list[tuple[str, bytes | None]]
    partition: int | None


def _send_lines(producer: Producer, descriptor: int, template: _Template) -> None:
    split, headers, partition = template
    number = 0
    try:
        for lines, paused in read_lines(descriptor):
            now_ms = int(time.time() * 1000)
            for line in lines:
                number += 1
                key, value = split(line, number)
                producer.send(key, value, now_ms, headers, partition)
            if paused:
                producer.flush()
    except DataError:
        producer.flush()  # the lines before the bad one are valid
        raise
    producer.flush()


def _open(path: str | None) -> int:
    if path is None:
        if sys.stdin.isatty():
            tell("Type one message per line. Press Ctrl-D to end.")
        return sys.stdin.fileno()
    try:
        return os.open(path, os.O_RDONLY)
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from None


def _splitter(separator: str | None) -> Callable[[bytes, int], tuple[bytes | None, bytes]]:
    if separator is None:
        return lambda line, _: (None, line)
    wanted = separator.replace("\\t", "\t").encode()
    if not wanted:
        raise UsageError("--key-separator must not be empty")

    def split(line: bytes, number: int) -> tuple[bytes | None, bytes]:
        key, found, value = line.partition(wanted)
        if not found:
            raise DataError(f"line {number} has no key: it does not contain '{separator}'")
        return key, value

    return split


def _headers(texts: Iterable[str]) -> list[tuple[str, bytes | None]]:
    headers: list[tuple[str, bytes | None]] = []
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise UsageError(f"--header {text!r} should be name=value")
        headers.append((name, value.encode("utf-8", "surrogateescape")))
    return headers


def _report(producer: Producer, seconds: float, json: bool) -> None:
    count = producer.acknowledged
    if json:
        print_json({"topic": producer.topic, "messages": count, "seconds": round(seconds, 3)})
        return
    rate = f" ({count / seconds:,.0f}/s)" if count else ""
    sent = counted(count, "message")
    tell(f"{sent} to {producer.topic} in {seconds:.2f} s{rate}")
