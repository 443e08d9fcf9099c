"""Fetch: records, sessions, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator

from compare.case import Case, Seen, asking, case, in_versions
from ottla.model.ids import ZERO_UUID
from ottla.wire.message import Message
from ottla.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
)


def fetch(
    topic: str,
    offset: int,
    *,
    index: int = 0,
    topic_id: bytes = ZERO_UUID,
    epoch: int = -1,
    last_epoch: int = -1,
    max_bytes: int = 1 << 20,
    partition_bytes: int = 1 << 20,
    isolation_level: int = 0,
    min_bytes: int = 1,
    session: tuple[int, int] = (0, -1),
) -> FetchRequest:
    partition = FetchPartition(
        partition=index,
        fetch_offset=offset,
        current_leader_epoch=epoch,
        last_fetched_epoch=last_epoch,
        partition_max_bytes=partition_bytes,
    )
    return FetchRequest(
        max_wait=0,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation_level,
        session_id=session[0],
        session_epoch=session[1],
        topics=[FetchTopic(topic=topic, topic_id=topic_id, partitions=[partition])],
    )


def by_id(name: str, version: int, topic: str, offset: int, **fields: int) -> Case:
    return asking(
        name, version, FetchRequest,
        lambda seen: fetch("", offset, topic_id=seen.topic_id(topic), **fields),  # type: ignore[arg-type]
    )  # fmt: skip


def cases() -> Iterator[Case]:
    """Yield the cases."""
    yield from in_versions("from 0", (4, 5, 7, 9, 11, 12), fetch("full", 0))
    for version in (13, 15, 17, 18):
        yield by_id("from 0", version, "full", 0)
    yield by_id("compressed", 13, "full", 0, index=1)
    yield by_id("idempotent", 13, "full", 0, index=2)
    yield by_id("log append time", 13, "appended", 0)
    yield by_id("another codec", 13, "zstd", 0)
    yield by_id("empty", 13, "empty", 0)
    yield by_id("end of the log", 13, "appended", 2)
    yield by_id("beyond the end", 13, "full", 10_000)
    yield by_id("negative offset", 13, "full", -1)
    yield by_id("deleted offset", 13, "deleted-from", 0)
    yield by_id("after deleted offsets", 13, "deleted-from", 3)
    yield by_id("offset within", 13, "full", 3)
    yield by_id("offset in a batch", 13, "full", 1, index=1)
    yield by_id("read committed", 13, "full", 0, isolation_level=1)
    yield by_id("isolation level 3", 13, "full", 0, isolation_level=3)
    yield by_id("unknown partition", 13, "full", 0, index=9)
    yield by_id("negative partition", 13, "full", 0, index=-1)
    for epoch in (0, 1, -2):
        yield by_id(f"leader epoch {epoch}", 13, "full", 0, epoch=epoch)
    for epoch in (0, 1, 9):
        yield by_id(f"last fetched epoch {epoch}", 13, "full", 1, last_epoch=epoch)
    yield by_id("last fetched epoch of empty", 13, "empty", 0, last_epoch=0)
    yield by_id("one byte", 13, "full", 0, max_bytes=1)
    yield by_id("one byte a partition", 13, "full", 0, partition_bytes=1)
    yield by_id("no bytes a partition", 13, "full", 0, partition_bytes=0)
    yield by_id("no bytes", 13, "full", 0, max_bytes=0)
    yield case("one byte", 4, fetch("full", 0, max_bytes=1))
    yield from in_versions("unknown topic", (4, 9, 12), fetch("nowhere", 0))
    yield case("unknown id", 13, fetch("", 0, topic_id=b"\x01" * 16))
    yield case("no id", 13, fetch("", 0))
    yield case("bad name", 12, fetch("a b", 0))
    yield from in_versions("no topics", (4, 12, 18), FetchRequest())
    twice = fetch("full", 0, max_bytes=1)
    twice.topics[0].partitions.append(twice.topics[0].partitions[0])
    yield case("partition twice", 12, twice)
    yield from _sessions()


def _remember(seen: Seen, answer: Message) -> None:
    assert isinstance(answer, FetchResponse)
    seen.values["session"] = answer.session_id


def _next(seen: Seen, epoch: int, topics: bool = False) -> FetchRequest:
    request = fetch("appended", 0, session=(seen.number("session"), epoch))
    if not topics:
        request.topics = []
    return request


def _forget(seen: Seen) -> FetchRequest:
    request = _next(seen, 3)
    request.forgotten_topics_data = [ForgottenTopic(topic="appended", partitions=[0, 7])]
    return request


def _sessions() -> Iterator[Case]:
    new = fetch("appended", 0, session=(0, 0))
    yield case("new session", 12, new, remember=_remember)
    yield asking("session: the same again", 12, FetchRequest, lambda seen: _next(seen, 1))
    yield asking("session: from 0 again", 12, FetchRequest, lambda seen: _next(seen, 2, True))
    yield asking("session: forget", 12, FetchRequest, _forget)
    yield asking("session: nothing left", 12, FetchRequest, lambda seen: _next(seen, 4))
    yield asking("session: wrong epoch", 12, FetchRequest, lambda seen: _next(seen, 9))
    yield asking("session: close", 12, FetchRequest, lambda seen: _next(seen, -1))
    yield asking("session: closed", 12, FetchRequest, lambda seen: _next(seen, 5))
    yield from in_versions("unknown session", (7, 12), fetch("full", 0, session=(12345, 1)))
    yield case("unknown session, epoch 0", 12, fetch("appended", 0, session=(12345, 0)))
    yield case("session 0, epoch 5", 12, fetch("appended", 0, session=(0, 5)))
