"""DescribeProducers of a partition that remembers very many producers."""

from __future__ import annotations

from ottla.log.state.producer_table import ProducerEntry
from ottla.testing.fakes import START_MS
from ottla.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from tests.support.broker import Broker
from tests.support.request_cost import TickingClock, cost_of

MANY = 20_000
MOST_CALLS = 10_000


def test_a_wake_up_unpacks_some_producers() -> None:
    broker = Broker(TickingClock())
    entries = broker.topic("t").online_log().producers.entries
    request = DescribeProducersRequest(topics=[TopicRequest(name="t", partition_indexes=[0])])
    cost_of(broker, request, 0)  # compiles what it needs
    for producer_id in range(MANY):
        entries[producer_id] = ProducerEntry(0, b"", START_MS, -1, -1)
    cost = cost_of(broker, request, 0)
    assert cost.response_bytes > 30 * MANY
    assert cost.most_calls < MOST_CALLS
