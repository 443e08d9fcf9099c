"""A fetch over several disks of which one cannot be read."""

from __future__ import annotations

from ottla.model.errors import ErrorCode
from ottla.sim.script import Script
from ottla.wire.messages.fetch import FetchResponse
from tests.support.sim_script import FETCH_VERSION, create_topic, fetch_request, fetched, produce

FAILED = ErrorCode.KAFKA_STORAGE_ERROR


def broken(*, partitions: int) -> Script:
    """Return a broker with one record in each partition. The disk of partition 0 fails now.

    It is not the disk of the metadata, without which the broker would end.
    """
    script = Script(log_dirs=("/data0", "/data1"))
    create_topic(script, name="first")
    create_topic(script, partitions)
    for partition in range(partitions):
        assert produce(script, b"%d" % partition, partition=partition).error_code == 0
    (holder,) = script.machine.holders("t", 0)
    assert holder == "/data1"
    assert script.machine.holders("t", 1) != [holder]
    for volume in script.faults.volumes:
        volume.eio_probability = 1.0 if volume.path == holder else 0.0
    return script


def test_the_room_of_records_that_cannot_be_read_goes_to_others() -> None:
    script = broken(partitions=2)
    reply = script.ask(fetch_request([0, 1], max_bytes=1), FETCH_VERSION)
    assert fetched(reply) == {0: FAILED, 1: [b"1"]}


def test_all_partitions_of_a_lost_directory_say_so() -> None:
    script = broken(partitions=4)
    reply = script.ask(fetch_request([0, 1, 2, 3]), FETCH_VERSION)
    assert fetched(reply) == {0: FAILED, 1: [b"1"], 2: FAILED, 3: [b"3"]}


def test_a_session_hears_of_it_as_well_and_goes_on() -> None:
    script = broken(partitions=2)
    first = script.ask(fetch_request([0, 1], max_bytes=1, session_epoch=0), FETCH_VERSION)
    assert fetched(first) == {0: FAILED, 1: [b"1"]}
    assert isinstance(first, FetchResponse)
    following = fetch_request([], session_id=first.session_id, session_epoch=1)
    following.topics = []
    second = script.ask(following, FETCH_VERSION)
    assert fetched(second) == {0: FAILED, 1: [b"1"]}
