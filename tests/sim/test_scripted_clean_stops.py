"""A clean stop, and the power fails right after it: everything is as it was told."""

from __future__ import annotations

from ottla.sim.script import Script
from ottla.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from tests.support.sim_script import TOPIC, create_topic, log_start, produce


def delete_records(script: Script, offset: int) -> None:
    partition = DeleteRecordsPartition(partition_index=0, offset=offset)
    topic = DeleteRecordsTopic(name=TOPIC, partitions=[partition])
    reply = script.ask(DeleteRecordsRequest(topics=[topic], timeout=1000), 1)
    assert isinstance(reply, DeleteRecordsResponse)
    assert reply.topics[0].partitions[0].error_code == 0


def test_deleted_segments_do_not_come_back() -> None:
    script = Script({"log.initial.task.delay.ms": "10", "log.retention.check.interval.ms": "100"})
    create_topic(script, internal_segment_bytes="120")
    for number in range(3):
        assert produce(script, b"%d" % number * 30).error_code == 0
    script.finish_background()
    delete_records(script, 1)
    script.stop()
    script.start()
    assert script.disk.has(f"/data/{TOPIC}-0/00000000000000000000.log")
    script.pass_time(50)
    assert not script.disk.has(f"/data/{TOPIC}-0/00000000000000000000.log")
    script.stop()
    script.lose_power()
    script.start()
    assert log_start(script) == 1
