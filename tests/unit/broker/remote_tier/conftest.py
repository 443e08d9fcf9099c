"""A broker with a tiered topic, and a client of it."""

from __future__ import annotations

import pytest

from ottla.replication.partition import Partition
from tests.support.broker import Client
from tests.support.tiered_broker import TieredBroker


@pytest.fixture
def broker() -> TieredBroker:
    return TieredBroker()


@pytest.fixture
def partition(broker: TieredBroker) -> Partition:
    return broker.tiered_topic()


@pytest.fixture
def client(broker: TieredBroker, partition: Partition) -> Client:
    return broker.connect()
