"""What a broker knows of its idempotent producers after SIGKILL, to the batch.

Here the moment is chosen, not hit by chance: batches are known to be written, their
acknowledgements are never read, and the broker dies.
"""

from __future__ import annotations

import pytest

from tests.harness.batches import batch_of, records_of
from tests.harness.deadline import eventually
from tests.harness.process import BrokerProcess
from tests.harness.raw import RawConnection
from tests.harness.topics import create_topic, fetch, produce

OUT_OF_ORDER_SEQUENCE_NUMBER = 45
INVALID_PRODUCER_EPOCH = 47
PRODUCER, OTHER = 1_000, 1_001


def batch(sequence: int, *, producer_id: int = PRODUCER, epoch: int = 0, size: int = 10) -> bytes:
    value = b"%d" % sequence * size
    return batch_of(
        [value] * 3, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence
    )


def high_watermark(broker: BrokerProcess) -> int:
    with RawConnection(broker.bootstrap_servers) as raw:
        return int(fetch(raw, "t", 0, partition_max_bytes=1).high_watermark)


def resend(broker: BrokerProcess, data: bytes) -> tuple[int, int]:
    with RawConnection(broker.bootstrap_servers) as raw:
        answer = produce(raw, "t", data)
    return int(answer.error_code), answer.base_offset


def die(broker: BrokerProcess) -> None:
    broker.kill()
    broker.start()


@pytest.mark.parametrize("in_flight", [1, 5])
def test_batches_written_but_not_acknowledged_are_not_written_again(
    broker: BrokerProcess, in_flight: int
) -> None:
    create_topic(broker.bootstrap_servers, "t")
    batches = [batch(3 * number) for number in range(in_flight)]
    with RawConnection(broker.bootstrap_servers) as raw:
        for data in batches:
            part = {"index": 0, "records": data}
            topics = [{"name": "t", "partition_data": [part]}]
            raw.send("produce", 9, acks=-1, timeout=10_000, topic_data=topics)
        eventually(lambda: high_watermark(broker) == 3 * in_flight, "all are written")
        die(broker)
    for number, data in enumerate(batches):
        assert resend(broker, data) == (0, 3 * number)
    assert high_watermark(broker) == 3 * in_flight
    assert resend(broker, batch(3 * in_flight)) == (0, 3 * in_flight)


def test_gaps_and_old_epochs_are_still_refused(broker: BrokerProcess) -> None:
    create_topic(broker.bootstrap_servers, "t")
    assert resend(broker, batch(0)) == (0, 0)
    assert resend(broker, batch(0, epoch=1)) == (0, 3)
    die(broker)
    assert resend(broker, batch(6, epoch=1))[0] == OUT_OF_ORDER_SEQUENCE_NUMBER
    assert resend(broker, batch(3, epoch=0))[0] == INVALID_PRODUCER_EPOCH
    assert resend(broker, batch(3, epoch=1)) == (0, 6)


@pytest.mark.parametrize("kills", [1, 3])
def test_a_producer_of_an_old_segment_is_remembered(broker: BrokerProcess, kills: int) -> None:
    create_topic(broker.bootstrap_servers, "t", 1, {"segment.bytes": "1048576"})
    for number in range(3):
        assert resend(broker, batch(3 * number)) == (0, 3 * number)
    with RawConnection(broker.bootstrap_servers) as raw:
        for number in range(30):
            data = batch(3 * number, producer_id=OTHER, size=20_000)
            assert produce(raw, "t", data).error_code == 0
    for _ in range(kills):
        die(broker)
    assert resend(broker, batch(6)) == (0, 6), "the last batch of a producer that fell silent"
    assert resend(broker, batch(87, producer_id=OTHER, size=20_000)) == (0, 9 + 87)
    assert resend(broker, batch(9)) == (0, 99)
    assert high_watermark(broker) == 102


@pytest.mark.slow
def test_the_log_is_whole_after_many_kills(broker: BrokerProcess) -> None:
    create_topic(broker.bootstrap_servers, "t", 1, {"segment.bytes": "1048576"})
    for number in range(8):
        with RawConnection(broker.bootstrap_servers) as raw:
            for each in range(6):
                data = batch_of([b"%d" % (number * 6 + each), b"x" * 60_000])
                assert produce(raw, "t", data).base_offset == (number * 6 + each) * 2
        die(broker)
    with RawConnection(broker.bootstrap_servers) as raw:
        position, values = 0, []
        while position < 96:
            records = records_of(fetch(raw, "t", position, partition_max_bytes=1 << 20).records)
            values += [record.value for record in records if record.offset % 2 == 0]
            position = records[-1].offset + 1
    assert values == [b"%d" % number for number in range(48)]
