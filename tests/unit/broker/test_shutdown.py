"""A clean shutdown, at any moment."""

from __future__ import annotations

from ottla.model.errors import ErrorCode
from ottla.records.record import build_batch
from ottla.testing.fakes import START_MS
from tests.support.broker import Broker


def test_what_was_appended_after_the_last_wake_up_is_written() -> None:
    """The results of work in the background are delivered last, and may append."""
    broker = Broker()
    partition = broker.topic("t")
    codes: list[ErrorCode] = []
    batch = build_batch([(b"k", b"v", START_MS, ())])
    broker.node.append_internal(partition, batch, codes.append)
    assert codes == []

    broker.node.shutdown()

    class Restarted(Broker):
        earlier_files = broker.node.ports.files

    assert codes == [ErrorCode.NONE]
    assert Restarted().node.topics.partition_named("t", 0).online_log().log_end_offset == 1
