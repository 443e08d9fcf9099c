"""The metadata log: what can be read of it."""

from __future__ import annotations

from ottla.controller.metadata_log import MetadataLog
from ottla.records.record import build_batch
from tests.support.controller import World


def test_batches_that_are_queued_are_left_out() -> None:
    """A leader reads its committed records while later ones wait for a write under way."""
    world = World().register()
    log = MetadataLog(world.controller.log)
    written = world.controller.log.written_end
    log.append(build_batch([(None, b"queued", 1, ())]), 1)
    assert world.controller.log.log_end_offset == written + 1
    assert [batch.next_offset for batch, _ in log.batches(0)][-1] == written
    assert list(log.batches(written)) == []
    world.controller.log.write_queued()
    assert [batch.base_offset for batch, _ in log.batches(written)] == [written]
