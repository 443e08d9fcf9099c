"""A broker that crashes at any step of writing a metadata snapshot finds everything again."""

from __future__ import annotations

import pytest

from ottla.sim.disk.faults import Crash
from ottla.sim.script import Script
from ottla.wire.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

PROPERTIES = {
    "metadata.log.max.record.bytes.between.snapshots": "1",
    "metadata.log.segment.ms": "1",
    "metadata.max.retention.bytes": "1",
}
STEPS = 120


def create(script: Script, name: str) -> None:
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    reply = script.ask(CreateTopicsRequest(topics=[topic], timeout=1000), 4)
    assert isinstance(reply, CreateTopicsResponse)
    assert reply.topics[0].error_code == 0


def snapshots(script: Script) -> list[str]:
    names = [entry.name for entry in script.disk.list("/data/__cluster_metadata-0")]
    return sorted(name for name in names if name.endswith(".checkpoint"))


@pytest.mark.parametrize("loses_power", [False, True])
def test_a_crash_at_any_step_loses_nothing(loses_power: bool) -> None:
    crashes = 0
    for step in range(STEPS):
        script = Script(PROPERTIES)
        for name in ("a", "b"):
            create(script, name)
            script.finish_background()
            script.pass_time(100)
        assert snapshots(script)
        done = {"a", "b"}
        script.faults.operations_until_crash = step
        try:
            create(script, "c")
            done.add("c")
            script.finish_background()
        except Crash:
            crashes += 1
        script.faults.operations_until_crash = -1
        script.kill()
        if loses_power:
            script.lose_power()
        script.start()
        found = set(script.node.image.topics)
        assert done <= found <= {"a", "b", "c"}, f"a crash at operation {step}"
        create(script, "d")
        script.finish_background()
        assert snapshots(script)
    assert STEPS > crashes > 20
