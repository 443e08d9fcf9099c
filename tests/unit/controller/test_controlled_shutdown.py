"""Whether a broker that wants to stop is needed until others have caught up."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ottla.config.broker import BrokerConfig
from ottla.controller.broker_changes import can_be_spared
from ottla.metadata.image import MetadataImage
from ottla.metadata.records import ConfigRecord, PartitionRecord, TopicRecord
from ottla.model.config_resources import ResourceType
from ottla.model.steps import run_to_end
from ottla.wire.message import Message

ID = b"t" * 16


@pytest.mark.parametrize(
    ("isr", "least", "fenced", "expected"),
    [
        ([1, 2, 3], 2, (), True),  # two are left, and that is enough
        ([1, 2], 2, (), False),  # 3 catches up, and will be enough then
        ([1, 2], 2, (3,), True),  # nobody else is there to wait for
        ([1, 2], 1, (), True),  # one is enough
        ([1], 2, (), True),  # writes are refused already
        ([1, 2, 3], 3, (), True),  # it will never be enough without this broker
        ([2, 3], 2, (), True),  # this broker is not in sync itself
    ],
)
def test_can_be_spared(
    brokers: Callable[..., MetadataImage],
    apply: Callable[[MetadataImage, list[Message]], None],
    isr: list[int],
    least: int,
    fenced: tuple[int, ...],
    expected: bool,
) -> None:
    image = brokers(3, fenced=fenced)
    apply(
        image,
        [
            TopicRecord(name="t", topic_id=ID),
            PartitionRecord(
                partition_id=0, topic_id=ID, replicas=[1, 2, 3], isr=isr, leader=isr[0]
            ),
            ConfigRecord(
                resource_type=ResourceType.TOPIC,
                resource_name="t",
                name="min.insync.replicas",
                value=str(least),
            ),
        ],
    )
    assert run_to_end(can_be_spared(image, BrokerConfig(), 1)) is expected
