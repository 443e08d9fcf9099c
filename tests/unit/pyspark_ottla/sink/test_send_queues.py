"""The order and the sequences of batches, for all results of the broker."""

from __future__ import annotations

import pytest

from ottla.client.errors import Refused
from ottla.client.settings import ClientSettings
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.records.batch import crc_of, parse_header
from ottla.records.record import build_batch, records_of
from pyspark_ottla.options.sink_options import SinkSettings
from pyspark_ottla.sink.produce_request import BatchResult
from pyspark_ottla.sink.record_batch import Batch
from pyspark_ottla.sink.send_queues import MAX_RENEWALS, RecordTooLarge, SendQueues

STORED = BatchResult(ErrorCode.NONE, None)
P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


def batch(partition: TopicPartition = P0, records: int = 10) -> Batch:
    made = [(None, b"%d" % number, 0, ()) for number in range(records)]
    return Batch(partition, build_batch(made), records)


def queues(count: int = 0, **settings: object) -> tuple[SendQueues, list[Batch]]:
    made = SendQueues(SinkSettings(ClientSettings("h:1"), **settings))  # type: ignore[arg-type]
    if made.must_renew:
        made.renew(100, 0)
    batches = [batch() for _ in range(count)]
    for one in batches:
        made.add(one)
    return made, batches


def send_all(made: SendQueues, now: float = 0.0) -> list[list[Batch]]:
    """Return every request that may be sent now."""
    sent = []
    while picked := made.pick(made.sendable(now)):
        made.mark_sent(picked)
        sent.append(picked)
    return sent


def answered(code: ErrorCode, message: str | None = None) -> BatchResult:
    return BatchResult(code, message)


def sequence_in(one: Batch) -> tuple[int, int]:
    header = parse_header(one.data, 0)
    assert header.crc == crc_of(memoryview(one.data), 0, len(one.data))
    return header.producer_id, header.base_sequence


def test_batches_are_numbered_and_at_most_five_are_under_way() -> None:
    made, batches = queues(7)
    assert [sequence_in(one) for one in batches] == [(100, 10 * n) for n in range(7)]
    assert send_all(made) == [[one] for one in batches[:5]]
    made.handle_result(batches[0], STORED, 0.0)
    assert send_all(made) == [[batches[5]]]
    for one in batches[1:6]:
        made.handle_result(one, STORED, 0.0)
    assert send_all(made) == [[batches[6]]]
    made.handle_result(batches[6], STORED, 0.0)
    assert (made.queued_bytes, made.in_flight, dict(made.rows)) == (0, 0, {"t": 70})


def test_without_numbers_one_batch_at_a_time() -> None:
    made, batches = queues(3, idempotent=False)
    assert sequence_in(batches[1]) == (-1, -1)
    assert send_all(made) == [[batches[0]]]


def test_a_request_has_one_batch_of_each_partition_up_to_its_size() -> None:
    made, batches = queues(2)
    other = batch(P1)
    made.add(other)
    assert send_all(made) == [[batches[0], other], [batches[1]]]
    small, few = queues(1, max_request_bytes=batches[0].size)
    small.add(batch(P1))
    assert [len(request) for request in send_all(small)] == [1, 1]
    assert few


def test_after_a_failure_everything_not_stored_is_sent_again_in_order() -> None:
    made, batches = queues(5)
    send_all(made)
    made.handle_result(batches[0], STORED, 0.0)
    made.handle_result(batches[1], answered(ErrorCode.NOT_LEADER_OR_FOLLOWER), 0.0)
    assert made.stale == {"t"}
    made.handle_result(batches[2], answered(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER), 0.0)
    late = batch()
    made.add(late)
    assert send_all(made, 99.0) == []  # two are still under way
    made.handle_result(batches[3], answered(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER), 0.0)
    made.handle_result(batches[4], answered(ErrorCode.NOT_LEADER_OR_FOLLOWER), 0.0)
    assert not made.must_renew
    assert send_all(made, 0.09) == []  # a pause of 100 ms
    assert made.resume_at(0.0) == pytest.approx(0.1)
    assert send_all(made, 0.1) == [[batches[1]], [batches[2]], [batches[3]], [batches[4]], [late]]
    assert [sequence_in(one)[1] for one in [*batches, late]] == [0, 10, 20, 30, 40, 50]


def test_what_a_lost_connection_left_behind_may_have_been_stored() -> None:
    made, batches = queues(3)
    send_all(made)
    for one in batches:
        made.handle_result(one, answered(ErrorCode.NETWORK_EXCEPTION, "it broke"), 0.0)
    send_all(made, 1.0)
    made.handle_result(batches[0], answered(ErrorCode.DUPLICATE_SEQUENCE_NUMBER), 1.0)
    made.handle_result(batches[1], STORED, 1.0)
    made.handle_result(batches[2], STORED, 1.0)
    assert dict(made.rows) == {"t": 30}
    assert made.queued_bytes == 0


def test_a_later_batch_may_be_stored_before_an_earlier_one_is_acknowledged() -> None:
    made, batches = queues(3)
    send_all(made)
    made.handle_result(batches[0], answered(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND), 0.0)
    made.handle_result(batches[1], STORED, 0.0)
    made.handle_result(batches[2], STORED, 0.0)
    assert send_all(made, 1.0) == [[batches[0]]]


def test_pauses_grow_and_end() -> None:
    made, (only,) = queues(1, delivery_timeout_ms=5_000)
    gone = answered(ErrorCode.LEADER_NOT_AVAILABLE, "gone")
    now, pauses = 0.0, []
    while now < 5.0:
        assert send_all(made, now) == [[only]]
        made.handle_result(only, gone, now)
        pauses.append(round(made.resume_at(now) - now, 3))
        now = made.resume_at(now)
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 1.0, 1.0]
    send_all(made, now)
    with pytest.raises(Refused, match=r"t-0 was not written after 9 attempts: gone \(LEADER"):
        made.handle_result(only, gone, now)


def test_retries_are_counted() -> None:
    made, (only,) = queues(1, retries=1)
    send_all(made)
    made.handle_result(only, answered(ErrorCode.REQUEST_TIMED_OUT), 0.0)
    send_all(made, 1.0)
    with pytest.raises(Refused, match="REQUEST_TIMED_OUT"):
        made.handle_result(only, answered(ErrorCode.REQUEST_TIMED_OUT), 1.0)


def test_an_error_that_does_not_pass_is_the_end() -> None:
    made, (only,) = queues(1)
    send_all(made)
    with pytest.raises(Refused, match=r"t-0 was not written: no \(TOPIC_AUTHORIZATION_FAILED\)"):
        made.handle_result(only, answered(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "no"), 0.0)


def test_a_broker_that_forgot_us_gets_new_numbers_once_nothing_is_under_way() -> None:
    made, batches = queues(3)
    other = batch(P1)
    made.add(other)
    send_all(made)
    made.handle_result(batches[0], answered(ErrorCode.UNKNOWN_PRODUCER_ID), 0.0)
    assert made.must_renew
    assert send_all(made, 9.0) == []
    made.handle_result(batches[1], answered(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER), 0.0)
    made.handle_result(batches[2], answered(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER), 0.0)
    made.handle_result(other, STORED, 0.0)
    made.renew(200, 0)
    added = batch(P1)
    made.add(added)
    assert [sequence_in(one) for one in batches] == [(200, 0), (200, 10), (200, 20)]
    assert sequence_in(added) == (200, 0)
    assert len(send_all(made)) == 3


def test_new_numbers_again_and_again_are_the_end() -> None:
    made, (only,) = queues(1)
    for producer_id in range(MAX_RENEWALS):
        send_all(made)
        made.handle_result(only, answered(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER), 0.0)
        made.renew(producer_id, 0)
    send_all(made)
    with pytest.raises(Refused, match="OUT_OF_ORDER_SEQUENCE_NUMBER"):
        made.handle_result(only, answered(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER), 0.0)


def test_a_batch_that_is_too_large_is_cut_in_its_place() -> None:
    made, batches = queues(3)
    send_all(made)
    made.handle_result(batches[0], STORED, 0.0)
    made.handle_result(batches[1], answered(ErrorCode.MESSAGE_TOO_LARGE), 0.0)
    made.handle_result(batches[2], answered(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER), 0.0)
    first, second, third = (request[0] for request in send_all(made))
    assert [one.records for one in (first, second, third)] == [5, 5, 10]
    assert [sequence_in(one)[1] for one in (first, second, third)] == [10, 15, 20]
    assert [record.value for record in records_of(second.data)] == [b"5", b"6", b"7", b"8", b"9"]
    assert made.queued_bytes == first.size + second.size + third.size


def test_a_record_that_is_too_large_says_so() -> None:
    made, _ = queues()
    alone = batch(records=1)
    made.add(alone)
    send_all(made)
    size = alone.size
    with pytest.raises(RecordTooLarge, match=f"record of {size} bytes.*max.message.bytes={size}"):
        made.handle_result(alone, answered(ErrorCode.MESSAGE_TOO_LARGE), 0.0)


def test_sequences_wrap_around() -> None:
    made, _ = queues()
    last = batch(records=4)
    made.add(last)
    send_all(made)
    made._queues[P0].sequence = 2**31 - 2
    wrapping, after = batch(records=4), batch(records=4)
    made.add(wrapping)
    made.add(after)
    assert sequence_in(wrapping)[1] == 2**31 - 2
    assert sequence_in(after)[1] == 2
