"""A Fetch of very many partitions, handled in slices.

It looks at some partitions in each slice. Partitions may change meanwhile: it watches those that
it has looked at, and if there was not enough for an answer, it looks at all of them again. The
connection is parked from the first slice to the answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from ottla.broker.codecs.fetch_request import FIRST_TOPIC_ID, FetchRequest
from ottla.broker.codecs.fetch_response import PartitionData, Records, encode_fetch_in_steps
from ottla.broker.handlers.fetch import Context, Found
from ottla.model.errors import ApiError
from ottla.model.steps import Steps
from ottla.replication.fetch_partitions import FetchEntry
from ottla.replication.fetch_session import FINAL_EPOCH, INITIAL_EPOCH
from ottla.wire.discard import discard_in_steps
from ottla.wire.lazy_list import LazyList
from ottla.wire.messages import fetch as messages

PARTITIONS_A_STEP: Final = 20


def fetch_in_steps(request: messages.FetchRequest, context: Context) -> Steps[None]:
    """Answer a request with what is there, or park it until there is enough."""
    head = _head(request)
    context.begin(head)
    try:
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            head.session_epoch = FINAL_EPOCH
            context.join_session(head)
            yield from _follow(request, context)
            if request.session_epoch == INITIAL_EPOCH:
                context.open_session()
        else:
            context.join_session(head)
            yield from _follow(request, context)
            yield from _forget(request, context)
            _count(context)
    except ApiError as error:
        context.respond(error.code, 0, [], [])
        return
    yield from answer_in_steps(context, request.max_wait)


def refuse_large(request: messages.FetchRequest, error: ApiError) -> messages.FetchResponse:
    """Return the error for the request and for each of its partitions."""

    def refused(partition: messages.FetchPartition) -> messages.PartitionData:
        return messages.PartitionData(
            partition_index=partition.partition,
            error_code=error.code,
            high_watermark=-1,
            last_stable_offset=-1,
            log_start_offset=-1,
        )

    return messages.FetchResponse(
        error_code=error.code,
        session_id=request.session_id,
        responses=[
            messages.FetchableTopicResponse(
                topic=topic.topic,
                topic_id=topic.topic_id,
                partitions=LazyList(refused, topic.partitions),
            )
            for topic in request.topics
        ],
    )


def _head(request: messages.FetchRequest) -> FetchRequest:
    """Return the request without its partitions."""
    replica_id, replica_epoch = request.replica_id, -1
    if request.replica_state is not None:
        replica_id = request.replica_state.replica_id
        replica_epoch = request.replica_state.replica_epoch
    return FetchRequest(
        replica_id,
        request.max_wait,
        request.min_bytes,
        request.max_bytes,
        request.isolation_level,
        request.session_id,
        request.session_epoch,
        [],
        [],
        replica_epoch,
        request.rack_id.encode(),
    )


def _follow(request: messages.FetchRequest, context: Context) -> Steps[None]:
    fetcher = context.fetcher
    for topic in request.topics:
        key = _key(topic, context.version)
        for number, asked in enumerate(topic.partitions, 1):
            fetcher.follow(key, asked.partition).move(
                asked.current_leader_epoch,
                asked.fetch_offset,
                asked.last_fetched_epoch,
                asked.partition_max_bytes,
                asked.log_start_offset,
            )
            if not number % PARTITIONS_A_STEP:
                yield
        yield


def _forget(request: messages.FetchRequest, context: Context) -> Steps[None]:
    for topic in request.forgotten_topics_data:
        key = _key(topic, context.version)
        for number, index in enumerate(topic.partitions, 1):
            context.fetcher.forget(key, index)
            if not number % PARTITIONS_A_STEP:
                yield
        yield


def _key(topic: messages.FetchTopic | messages.ForgottenTopic, version: int) -> bytes:
    return topic.topic_id if version >= FIRST_TOPIC_ID else topic.topic.encode()


def _count(context: Context) -> None:
    """Count what the session takes now, unless it was closed meanwhile or has nothing left."""
    session, sessions = context.session, context.node.fetch_sessions
    if session is None or not sessions.is_open(session):
        return
    sessions.count(session)
    if not context.fetcher.entries:
        sessions.close(session.session_id)
        context.session = None
        context.incremental = False


def answer_in_steps(context: Context, max_wait_ms: int) -> Steps[None]:
    """Reply if there is enough to say, or if there is no time to wait; else park the request."""
    context.is_answering = True
    fetcher = context.fetcher
    final = max_wait_ms <= 0
    if not final:

        def note_change(entry: FetchEntry) -> None:
            context.changed = entry

        fetcher.on_change = note_change
    data: list[PartitionData] = []
    entries: list[FetchEntry] = []
    records: list[Records] = []
    while True:
        found = yield from _collect(context, data, entries, records, watch=not final)
        if found is not None:
            break
        data.clear()
        entries.clear()
        records.clear()
    if not final and not context.is_enough(found, entries):
        context.is_answering = False
        changed, context.changed = context.changed, None
        context.wait_for_changes(max_wait_ms)
        if changed is not None:
            context.partition_changed(changed)
        return
    fetcher.on_change = None
    context.charge(data, entries)
    session_id = 0
    if context.session is None:
        yield from fetcher.close()
    else:
        session_id = context.session.session_id
        for start in _starts(data):
            stop = start + PARTITIONS_A_STEP
            context.note_sent(data[start:stop], entries[start:stop])
            yield
    parts = yield from encode_fetch_in_steps(
        context.version, context.correlation_id, session_id, data, records, context.throttle_ms
    )
    context.complete_parts(parts)
    yield from discard_in_steps(data, entries, records)


def _collect(
    context: Context,
    data: list[PartitionData],
    entries: list[FetchEntry],
    records: list[Records],
    *,
    watch: bool,
) -> Steps[Found | None]:
    """Look at all partitions that may have something to say, and read those that have little.

    None if some cannot be read: then all of them must be looked at again.
    """
    fetcher = context.fetcher
    looked = list(fetcher.dirty if context.incremental else fetcher.entries.values())
    found: Found = (context.max_bytes, 0, 0, 0, 0, False)
    for start in _starts(looked):
        some = looked[start : start + PARTITIONS_A_STEP]
        before = len(data)
        found = context.collect(some, data, entries, found)
        read = context.read(data[before:], entries[before:])
        if read is None:
            return None
        records += read
        if watch:
            _watch(some)
        yield
    return found


def _watch(entries: Iterable[FetchEntry]) -> None:
    for entry in entries:
        if entry.partition is not None:
            entry.watch(entry.partition)


def _starts(items: list[FetchEntry] | list[PartitionData]) -> Iterator[int]:
    return iter(range(0, len(items), PARTITIONS_A_STEP))
