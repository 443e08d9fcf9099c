"""Logs without `partition.metadata`, as an old Kafka leaves them, and what goes wrong then."""

from __future__ import annotations

from ottla.model.errors import ErrorCode
from ottla.sim.script import Script
from tests.support.sim_script import create_topic, produce, read

HOME = "/data1/t-1"


def old_log() -> Script:
    """Return a stopped broker. Partition 1, on the second disk, has no topic id."""
    script = Script(log_dirs=("/data0", "/data1"))
    create_topic(script, 2)
    assert produce(script, b"kept", partition=1).error_code == 0
    assert script.disk.has(HOME)
    script.stop()
    script.disk.restart()
    script.disk.unlink(f"{HOME}/partition.metadata")
    script.disk.sync_dir(HOME)
    return script


def test_a_log_that_does_not_say_whose_it_is_is_adopted() -> None:
    script = old_log()
    script.start()
    assert read(script, 1) == [b"kept"]
    assert script.disk.has(f"{HOME}/partition.metadata")


def test_one_that_could_not_be_adopted_is_still_there_after_a_kill() -> None:
    script = old_log()
    script.faults.volumes[1].free_bytes = 0
    script.start()
    assert read(script, 1) == ErrorCode.KAFKA_STORAGE_ERROR
    script.kill()
    script.faults.heal()
    script.start()
    assert read(script, 1) == [b"kept"]


def test_one_that_could_not_be_adopted_is_served_once_there_is_room() -> None:
    script = old_log()
    script.faults.volumes[1].free_bytes = 0
    script.start()
    script.faults.heal()
    script.pass_time(1500)
    assert read(script, 1) == [b"kept"]
    assert produce(script, b"new", partition=1).error_code == 0


def test_one_that_was_lost_with_its_disk_meanwhile_is_not_made_anew_elsewhere() -> None:
    script = old_log()
    script.faults.volumes[1].free_bytes = 0
    script.start()
    script.faults.volumes[1].eio_probability = 1.0
    script.pass_time(5000)
    assert list(script.node.store.offline_dirs) == ["/data1"]
    assert read(script, 1) == ErrorCode.KAFKA_STORAGE_ERROR
    assert script.machine.holders("t", 1) == ["/data1"]
    script.stop()
    script.faults.heal()
    script.start()
    assert read(script, 1) == [b"kept"]
