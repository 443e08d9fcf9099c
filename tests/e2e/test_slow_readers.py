"""A client that asks for much and reads nothing takes little memory, and nobody waits for it."""

from __future__ import annotations

from tests.harness.batches import batch_of
from tests.harness.entities import encode_request
from tests.harness.process import BrokerProcess
from tests.harness.raw import API_KEYS, RawConnection
from tests.harness.topics import create_topic, fetch_fields, produce

PARTITIONS = 300
FETCHES = 40
MOST_BYTES = 64 * 1024 * 1024
ALL = 2**31 - 1


def pipelined_fetches(session_id: int) -> bytes:
    """Return small requests, each for all that the session's partitions hold."""
    frames = [
        encode_request(
            API_KEYS["fetch"],
            12,
            epoch,
            "slow",
            fetch_fields({}, session_id=session_id, session_epoch=epoch, max_bytes=ALL),
        )
        for epoch in range(1, FETCHES + 1)
    ]
    return b"".join(len(frame).to_bytes(4) + frame for frame in frames)


def test_pipelined_fetches_of_one_that_does_not_read(broker: BrokerProcess) -> None:
    create_topic(broker.bootstrap_servers, "t", PARTITIONS)
    with RawConnection(broker.bootstrap_servers) as raw:
        for index in range(PARTITIONS):
            produce(raw, "t", batch_of([bytes(30_000)]), partition=index)
    before = broker.rss_bytes()
    positions = {"t": dict.fromkeys(range(PARTITIONS), 0)}
    with (
        RawConnection(broker.bootstrap_servers, receive_buffer=4096) as slow,
        RawConnection(broker.bootstrap_servers) as other,
    ):
        first = slow.request(
            "fetch",
            12,
            **fetch_fields(positions, session_id=0, session_epoch=0, max_bytes=ALL),
        )
        slow.send_bytes(pipelined_fetches(first.session_id))
        for _ in range(50):
            assert other.request("metadata", 12, topics=[]).brokers
        assert broker.rss_bytes() - before < MOST_BYTES
        sizes = [len(slow.receive_frame()) for _ in range(FETCHES)]
        assert min(sizes) > 1_000_000, "all are answered in the end"
