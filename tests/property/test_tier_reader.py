"""Remote segments read without a broker are the log that they come from.

Histories of plain batches and interleaved transactions, leader epochs and rolls; then any part of
the closed segments is uploaded. The reader must see what a consumer of the log sees, from each
offset on.
"""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.config.topic import LogConfig
from ottla.log.log import Log
from ottla.server.object_stores.blocking_store import open_blocking_store
from ottla.tier_reader.topic import RemoteTopic
from tests.support.log import NOW, TOPIC_ID, append, batch_of, new_log, read_all
from tests.support.tier import upload
from tests.support.transactions import (
    append_in_transaction,
    end_transaction,
    read_committed,
    transactional,
)

CONFIG = LogConfig(segment_bytes=900, index_interval_bytes=150, retention_ms=-1)
PRODUCERS = st.integers(1, 3)
STEP = st.one_of(
    st.tuples(st.just("plain"), st.integers(1, 4), st.integers(-50, 50)),
    st.tuples(st.just("data"), PRODUCERS, st.integers(1, 3)),
    st.tuples(st.just("end"), PRODUCERS, st.booleans()),
    st.tuples(st.just("epoch"), st.integers(1, 3), st.just(0)),
    st.tuples(st.just("roll"), st.just(0), st.just(0)),
)


def log_of(steps: list[tuple[str, int, int]]) -> Log:
    """Return a log with this history."""
    log, epoch, sequences = new_log(CONFIG), 0, dict.fromkeys((1, 2, 3), 0)
    for number, (kind, first, second) in enumerate(steps):
        if kind == "plain":
            timestamp = NOW + number * 10 + second
            append(log, batch_of(first, timestamp=timestamp), leader_epoch=epoch)
        elif kind == "data":
            batch = transactional(first, sequences[first], count=second)
            append_in_transaction(log, batch, leader_epoch=epoch)
            sequences[first] += second
        elif kind == "end":
            end_transaction(log, first, commit=bool(second), leader_epoch=epoch)
        elif kind == "epoch":
            epoch += first
        log.write_queued()
        if kind == "roll" and log.log_end_offset > log.segments.active.base_offset:
            log.roll(NOW)
        log.high_watermark = log.log_end_offset
    return log


@settings(max_examples=80, deadline=None)
@given(st.lists(STEP, min_size=5, max_size=60), st.integers(0, 100))
def test_the_reader_sees_what_a_consumer_of_the_log_sees(
    steps: list[tuple[str, int, int]], start: int
) -> None:
    log = log_of(steps)
    closed = list(log)[:-1]
    if not closed:
        return
    store = open_blocking_store("memory:")
    upload(store, log, closed)
    partition = RemoteTopic(store, "t", TOPIC_ID).partition(0)
    end = partition.next_offset
    assert end == log.segments.active.base_offset
    data = [b for b in read_all(log, min(start, end)) if not b.is_control and b.next_offset <= end]
    assert [b.header[:13] for b in partition.batches(start)] == [b[:13] for b in data]

    stable = partition.stable_offset
    assert stable <= min(end, log.last_stable_offset)
    shown = [b.base_offset for b in read_committed(log, min(start, end)) if b.next_offset <= stable]
    found = partition.batches(start, read_committed=True)
    assert [b.header.base_offset for b in found] == shown

    for timestamp in (NOW - 60, NOW + start * 5, NOW + 10_000):
        expected = next((r.offset for r in partition.records() if r.timestamp >= timestamp), None)
        at = partition.offset_for_timestamp(timestamp)
        if at != expected:  # a control record has a timestamp too
            assert at is not None
            (record,) = [b for b in read_all(log) if b.base_offset <= at <= b.last_offset]
            assert record.is_control
            assert expected is None or at < expected
