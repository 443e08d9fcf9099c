"""Groups of batches of which a part was written because a new segment was due."""

from __future__ import annotations

from ottla.model.errors import ErrorCode
from ottla.sim.script import Script
from ottla.wire.messages.delete_topics import DeleteTopicsRequest
from tests.support.sim_script import (
    PRODUCE_VERSION,
    TOPIC,
    answer_of,
    create_topic,
    produce,
    produce_request,
    read,
)

SEGMENT_BYTES = 250


def test_what_was_written_before_a_roll_that_failed_is_forced_to_disk() -> None:
    script = Script()
    create_topic(script, flush_messages="1", internal_segment_bytes=str(SEGMENT_BYTES))
    assert produce(script, b"0" * 30).error_code == 0
    channel = script.connect()
    first, second = (produce_request(script, value * 30) for value in (b"1", b"2"))
    size = len(first.topic_data[0].partition_data[0].records or b"")
    assert 2 * size < SEGMENT_BYTES < 3 * size
    exchanges = [script.send(channel, each, PRODUCE_VERSION) for each in (first, second)]
    script.faults.volumes[0].free_bytes = size
    script.wake()
    codes = [answer_of(exchange).error_code for exchange in exchanges]
    assert codes == [ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR]
    script.lose_power()
    script.faults.heal()
    script.start()
    assert read(script) == [b"0" * 30, b"1" * 30]


def test_a_topic_deleted_before_the_write_harms_nobody() -> None:
    """A part of the group is in the files of a log that is no more."""
    script = Script()
    create_topic(script, flush_messages="1", internal_segment_bytes=str(SEGMENT_BYTES))
    channel = script.connect()
    exchanges = [
        script.send(channel, produce_request(script, b"%d" % number * 30), PRODUCE_VERSION)
        for number in range(3)
    ]
    script.send(channel, DeleteTopicsRequest(topic_names=[TOPIC], timeout=1000), 3)
    script.wake()
    assert [answer_of(exchange).error_code for exchange in exchanges] == [0, 0, 0]
    assert not script.node.store.offline_dirs
