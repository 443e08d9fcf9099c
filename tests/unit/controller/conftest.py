"""An image of a small cluster, and randomness that counts up."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import pytest

from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import MetadataImage
from ottla.metadata.records import RegisterBrokerRecord
from ottla.testing.fakes import FakeRandom
from ottla.wire.message import Message

Brokers = Callable[..., MetadataImage]


class GrowingImage:
    """Reads like an image; `grow` replaces what it shows."""

    def __init__(self) -> None:
        self.now = MetadataImage("cluster")

    def __getattr__(self, name: str) -> object:
        return getattr(self.now, name)


def grow(image: MetadataImage, records: list[Message]) -> None:
    assert isinstance(image, GrowingImage)
    image.now = MetadataDelta(image.now).replay_all(records).apply()


@pytest.fixture
def random() -> FakeRandom:
    return FakeRandom()


@pytest.fixture
def brokers() -> Brokers:
    """Return `brokers(3)` or `brokers(2, fenced=[2], racks={1: "a"})`, which make an image."""

    def make(
        count: int, fenced: tuple[int, ...] = (), racks: dict[int, str] | None = None
    ) -> MetadataImage:
        image = cast(MetadataImage, GrowingImage())
        grow(
            image,
            [
                RegisterBrokerRecord(
                    broker_id=broker_id,
                    fenced=broker_id in fenced,
                    rack=(racks or {}).get(broker_id),
                    log_dirs=[bytes([broker_id]) * 16],
                )
                for broker_id in range(1, count + 1)
            ],
        )
        return image

    return make


@pytest.fixture
def image(brokers: Brokers) -> MetadataImage:
    return brokers(1)


@pytest.fixture
def apply() -> Callable[[MetadataImage, list[Message]], None]:
    return grow
