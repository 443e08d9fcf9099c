from __future__ import annotations

import pytest

from ottla.client.producer.partitioner import Partitioner, murmur2


@pytest.mark.parametrize(
    ("data", "signed"),
    [
        # What Kafka's Java client gives for these.
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_the_hash_is_javas(data: bytes, signed: int) -> None:
    assert murmur2(data) == signed & 0xFFFFFFFF


def test_a_key_keeps_its_partition() -> None:
    assert {Partitioner(12).partition_for(b"foobar") for _ in range(20)} == {
        (-790332482 & 0x7FFFFFFF) % 12
    }


def test_messages_without_a_key_stay_together_until_a_switch() -> None:
    partitioner = Partitioner(3)
    before = {partitioner.partition_for(None) for _ in range(10)}
    partitioner.switch()
    after = {partitioner.partition_for(None) for _ in range(10)}
    assert len(before) == len(after) == 1
    assert before.isdisjoint(after)


def test_one_partition_leaves_no_choice() -> None:
    partitioner = Partitioner(1)
    partitioner.switch()
    assert partitioner.partition_for(None) == partitioner.partition_for(b"key") == 0
