"""A minimal Kafka client: one Produce v9 request on a plain socket, repeated until acknowledged.

It finds out when a broker that was just started accepts writes. It polls often; with a client
library, the reconnect backoff of the library would be measured instead of the broker.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Sequence
from itertools import cycle

import crc32c

from harness.problem import BenchError

RETRY_S = 0.002
ANSWER_TIMEOUT_S = 10.0


def await_acknowledgement(
    port: int,
    topic: str,
    timeout_s: float,
    alive: Callable[[], bool] = lambda: True,
    *,
    others: Sequence[int] = (),
    acks: int = 1,
) -> None:
    """Return at the first acknowledged write to partition 0 of `topic`.

    `others` are the ports of more brokers, which are tried in turn. Raise BenchError if no write is
    acknowledged within `timeout_s`, or if the broker is no longer `alive`.
    """
    frame = _produce_frame(topic, acks)
    ports = cycle((port, *others))
    deadline = time.monotonic() + timeout_s
    last = "nothing listened"
    while time.monotonic() < deadline and alive():
        try:
            error = _exchange(next(ports), topic, frame)
        except OSError as problem:
            last = str(problem)
        else:
            if error == 0:
                return
            last = f"error code {error}"
        time.sleep(RETRY_S)
    reason = f"within {timeout_s:.0f} s: {last}" if alive() else "before the broker ended"
    raise BenchError(f"no write to {topic} was acknowledged {reason}")


def _exchange(port: int, topic: str, frame: bytes) -> int:
    with socket.create_connection(("127.0.0.1", port), timeout=ANSWER_TIMEOUT_S) as connection:
        connection.sendall(frame)
        size = struct.unpack(">i", _receive(connection, 4))[0]
        answer = _receive(connection, size)
    # correlation id, header tags, one topic, its name, one partition, partition index
    return int(struct.unpack_from(">h", answer, 4 + 1 + 1 + 1 + len(topic) + 1 + 4)[0])


def _receive(connection: socket.socket, size: int) -> bytes:
    received = bytearray()
    while len(received) < size:
        chunk = connection.recv(size - len(received))
        if not chunk:
            raise ConnectionError("closed by the broker")
        received += chunk
    return bytes(received)


def _produce_frame(topic: str, acks: int) -> bytes:
    batch = _one_record_batch(b"x" * 100)
    name = topic.encode()
    body = struct.pack(">hhih5sB", 0, 9, 1, 5, b"bench", 0)
    body += struct.pack(">Bhi", 0, acks, 30_000)
    body += bytes([2, len(name) + 1]) + name + struct.pack(">Bi", 2, 0)
    body += _uvarint(len(batch) + 1) + batch + bytes(3)
    return struct.pack(">i", len(body)) + body


def _one_record_batch(value: bytes) -> bytes:
    record = bytes([0, 0, 0, 1]) + _uvarint(2 * len(value)) + value + b"\0"
    records = _uvarint(2 * len(record)) + record
    now_ms = int(time.time() * 1000)
    tail = struct.pack(">hiqqqhii", 0, 0, now_ms, now_ms, -1, -1, -1, 1) + records
    return struct.pack(">qiibI", 0, len(tail) + 9, -1, 2, crc32c.crc32c(tail)) + tail


def _uvarint(value: int) -> bytes:
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
