"""A broker starts on a full disk, and a log whose segment the power took must be begun again."""

from __future__ import annotations

import pytest

from ottla.model.errors import ErrorCode
from ottla.sim.script import Script
from tests.support.sim_script import TOPIC, create_topic, delete_topic, produce, read


@pytest.fixture
def full() -> Script:
    """Return a broker that was started without room for the second partition's segment."""
    script = Script(log_dirs=("/data0", "/data1"))
    create_topic(script, 2)
    assert produce(script, b"0").error_code == 0
    assert script.machine.holders(TOPIC, 1) == ["/data1"]
    script.kill()
    script.disk.restart()
    script.disk.unlink(f"/data1/{TOPIC}-1/00000000000000000000.log")
    script.faults.volumes[1].free_bytes = -1_000_000  # whatever the start gives back is not enough
    script.start()
    return script


def test_only_the_log_without_room_waits_until_there_is_some(full: Script) -> None:
    assert read(full, 0) == [b"0"]
    assert read(full, 1) == ErrorCode.KAFKA_STORAGE_ERROR
    assert not full.node.store.offline_dirs
    full.faults.heal()
    full.pass_time(1500)
    assert produce(full, b"1", partition=1).error_code == 0
    assert read(full, 1) == [b"1"]


def test_a_log_that_was_not_recovered_is_not_left_cleanly(full: Script) -> None:
    full.stop()
    full.faults.heal()
    full.start()
    assert not full.node.store.directories["/data1"].was_clean
    assert full.node.store.directories["/data0"].was_clean
    assert read(full, 1) == []


def test_a_topic_can_be_deleted_meanwhile_and_made_anew(full: Script) -> None:
    delete_topic(full)
    create_topic(full, 2)
    full.faults.heal()
    full.pass_time(1500)
    assert (read(full, 0), read(full, 1)) == ([], [])
    full.stop()
    full.start()
    assert (read(full, 0), read(full, 1)) == ([], [])


def test_a_disk_that_fails_takes_it_along(full: Script) -> None:
    full.faults.volumes[1].eio_probability = 1.0
    full.pass_time(1500)
    assert list(full.node.store.offline_dirs) == ["/data1"]
    assert full.machine.holders(TOPIC, 1) == ["/data1"]
    full.pass_time(3000)
    assert read(full, 1) == ErrorCode.KAFKA_STORAGE_ERROR
