"""The metadata log: what can be read of it."""

from __future__ import annotations

from ottla.controller.metadata_log import MetadataLog
from ottla.records.batch import scan
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


def test_a_peer_gets_a_part_of_a_long_log() -> None:
    """Whoever can reach a controller can ask for everything, again and again."""
    log = MetadataLog(World().register().controller.log)
    start = log.end_offset
    for _ in range(40):
        log.append(build_batch([(None, bytes(100_000), 1, ())]), 1)
    found = log.read(start, 2**31 - 1)
    assert found is not None
    assert 100_000 < len(found) <= 1024 * 1024
    everything, offset = b"", start
    while (part := log.read(offset, 2**31 - 1)) is not None:
        everything += part
        offset = max(batch.next_offset for batch in scan(part, 0, len(part)))
    assert offset == log.end_offset
    assert len(everything) > 4_000_000
