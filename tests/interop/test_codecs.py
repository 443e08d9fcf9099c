"""Every codec and size, written by each client and read back by all of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.harness.batches import CODECS, batch_of, records_of, whole_batches
from tests.harness.model import EARLIEST, Client
from tests.harness.raw import RawConnection
from tests.harness.topics import fetch, produce

SIZES = (0, 1, 100, 4_096, 70_000, 1_000_000)


def payload(size: int) -> bytes:
    """Return bytes that compress somewhat, and differ by size."""
    return (b"%d-ottla-" % size * (size // 8 + 1))[:size]


@pytest.mark.parametrize("codec", CODECS)
def test_what_one_client_writes_all_clients_read(
    client: Client, clients: list[Client], codec: str, topic: str, bootstrap_servers: str
) -> None:
    with client.producer(bootstrap_servers, compression=codec) as producer:
        for size in SIZES:
            producer.send(topic, payload(size), key=b"%d" % size)
        acks = producer.flush()
    assert [ack.offset for ack in acks] == list(range(len(SIZES)))

    for reader in clients:
        with reader.consumer(bootstrap_servers) as consumer:
            consumer.assign({(topic, 0): EARLIEST})
            messages = consumer.take(len(SIZES))
        assert [message.offset for message in messages] == list(range(len(SIZES))), reader.name
        assert [message.key for message in messages] == [b"%d" % size for size in SIZES]
        assert [message.value for message in messages] == [payload(size) for size in SIZES]


@pytest.mark.parametrize("codec", CODECS)
def test_batches_come_back_in_the_codec_they_were_sent_in(
    raw: RawConnection, topic: str, codec: str
) -> None:
    assert produce(raw, topic, batch_of([b"x" * 1000] * 10, codec=codec)).error_code == 0

    (batch,) = whole_batches(fetch(raw, topic, 0).records)
    assert batch.compression_type == CODECS[codec]
    assert [record.value for record in batch] == [b"x" * 1000] * 10


@pytest.mark.parametrize("sent", CODECS)
@pytest.mark.parametrize("wanted", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_a_topic_that_names_a_codec_stores_batches_in_it(
    raw: RawConnection, make_topic: Callable[..., str], sent: str, wanted: str
) -> None:
    topic = make_topic(configs={"compression.type": wanted})
    values = [b"value-%d" % number * 50 for number in range(20)]
    answer = produce(raw, topic, batch_of(values, codec=sent))
    assert (answer.error_code, answer.base_offset) == (0, 0)
    assert produce(raw, topic, batch_of(values, codec=sent)).base_offset == 20

    stored = fetch(raw, topic, 0).records
    assert [batch.compression_type for batch in whole_batches(stored)] == [
        CODECS["none" if wanted == "uncompressed" else wanted]
    ] * 2
    assert [record.value for record in records_of(stored)] == values * 2
    assert [record.offset for record in records_of(stored)] == list(range(40))


def test_a_large_batch_is_read_from_its_middle(raw: RawConnection, topic: str) -> None:
    produce(raw, topic, batch_of([b"%d" % number for number in range(100)], codec="lz4"))

    found = records_of(fetch(raw, topic, 50).records)
    assert found[0].offset == 0, "a batch is sent whole; the client skips to its offset"
    assert found[-1].offset == 99
