"""A sync fails, the process ends, the disk is well again: what can be read then must last.

Linux takes pages that it could not write for written. The next process sees them, and unless it
writes them once more no sync of its own brings them to the disk.
"""

from __future__ import annotations

import pytest

from ottla.model.errors import ErrorCode
from ottla.sim.script import Script
from tests.support.sim_script import create_topic, produce, read


def fail_with_the_next_sync(script: Script, part_of_path: str) -> None:
    """Let the disk fail for good at the next sync of a file."""

    def fail(operation: str, path: str) -> None:
        if operation == "sync" and part_of_path in path:
            script.faults.volumes[0].eio_probability = 1.0

    script.disk.on_operation = fail


def restart(script: Script) -> None:
    script.kill()
    script.disk.on_operation = lambda operation, path: None
    script.faults.heal()
    script.start()


def test_records_that_are_forced_to_disk_one_by_one() -> None:
    script = Script()
    create_topic(script, flush_messages="1")
    assert produce(script, b"1").error_code == 0
    fail_with_the_next_sync(script, "/t-0/")
    assert produce(script, b"2").error_code == ErrorCode.KAFKA_STORAGE_ERROR
    restart(script)
    assert read(script) == [b"1", b"2"]
    script.lose_power()
    script.start()
    assert read(script) == [b"1", b"2"]


def test_metadata() -> None:
    script = Script()
    fail_with_the_next_sync(script, "/__cluster_metadata-0/")
    with pytest.raises(AssertionError):
        create_topic(script, flush_messages="1")
    restart(script)
    assert produce(script, b"1").error_code == 0
    script.lose_power()
    script.start()
    assert read(script) == [b"1"]
