"""One shape for the three client libraries, so that a test is written once and run with each.

Errors are Kafka's error codes; negative codes are a library's own (a timeout, say).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import NamedTuple, Protocol, Self, TypeAlias

from tests.harness.deadline import Deadline

EARLIEST = -2
LATEST = -1
CREATE_TIME = 0
LOG_APPEND_TIME = 1

Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]


class Message(NamedTuple):
    """A record as a consumer hands it to its user."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: Headers


class Ack(NamedTuple):
    """What a producer was told about one message; offset -1 where nothing was promised."""

    partition: int
    offset: int
    error: int = 0


class AdminError(Exception):
    """The broker refused an administrative request."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message


class TopicDescription(NamedTuple):
    """Partition -> (leader, replicas, in-sync replicas)."""

    name: str
    partitions: dict[int, tuple[int, list[int], list[int]]]


class Closing:
    """A context manager whose end is `close()`."""

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class Producer(Closing):
    """Sends messages; `flush` tells what became of them, in the order they were sent."""

    def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        partition: int = 0,
        timestamp_ms: int | None = None,
        headers: Headers = (),
    ) -> None:
        raise NotImplementedError

    def flush(self, timeout_s: float = 30.0) -> list[Ack]:
        """Wait for every message sent since the last flush."""
        raise NotImplementedError


class Consumer(Closing):
    """Reads assigned partitions; no groups, no commits."""

    def assign(self, positions: Mapping[tuple[str, int], int]) -> None:
        """Read these partitions from an offset, EARLIEST or LATEST."""
        raise NotImplementedError

    def seek(self, topic: str, partition: int, offset: int) -> None:
        raise NotImplementedError

    def poll(self, timeout_s: float) -> list[Message]:
        raise NotImplementedError

    def offsets_for_times(
        self, times: Mapping[tuple[str, int], int]
    ) -> dict[tuple[str, int], int | None]:
        raise NotImplementedError

    def watermarks(self, topic: str, partition: int) -> tuple[int, int]:
        """Ask the broker for the earliest and the latest offset."""
        raise NotImplementedError

    def take(self, count: int, timeout_s: float = 20.0) -> list[Message]:
        """Return at least `count` messages; raise AssertionError if fewer come."""
        deadline = Deadline(timeout_s)
        messages: list[Message] = []
        while len(messages) < count:
            assert not deadline.passed, f"{len(messages)} of {count} messages in {timeout_s} s"
            messages += self.poll(min(0.5, deadline.left))
        return messages


class Admin(Closing):
    """Topic administration; a refusal is an AdminError."""

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replication_factor: int = 1,
        *,
        configs: Mapping[str, str] | None = None,
        assignment: Sequence[Sequence[int]] | None = None,
        validate_only: bool = False,
    ) -> None:
        raise NotImplementedError

    def delete_topic(self, name: str) -> None:
        raise NotImplementedError

    def list_topics(self) -> set[str]:
        raise NotImplementedError

    def describe_topic(self, name: str) -> TopicDescription:
        raise NotImplementedError

    def create_partitions(self, topic: str, total: int, *, validate_only: bool = False) -> None:
        raise NotImplementedError

    def topic_configs(self, topic: str) -> dict[str, str | None]:
        raise NotImplementedError

    def set_topic_configs(self, topic: str, configs: Mapping[str, str]) -> None:
        """Change a topic's configuration the way the library does it by default."""
        raise NotImplementedError

    def delete_records(self, topic: str, partition: int, before_offset: int) -> int:
        """Delete all records before an offset; the new low watermark."""
        raise NotImplementedError


class Client(Protocol):
    """One client library: how to get its producer, consumer and admin client."""

    name: str

    def producer(
        self,
        bootstrap_servers: str,
        *,
        acks: int | str = "all",
        compression: str = "none",
        idempotent: bool = False,
        linger_ms: int = 5,
        delivery_timeout_ms: int = 30_000,
    ) -> Producer: ...

    def consumer(
        self,
        bootstrap_servers: str,
        *,
        read_committed: bool = False,
        max_wait_ms: int = 100,
        min_bytes: int = 1,
        reset: str = "earliest",
        max_partition_bytes: int = 1_048_576,
    ) -> Consumer: ...

    def admin(self, bootstrap_servers: str) -> Admin: ...
