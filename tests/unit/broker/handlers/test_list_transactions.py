"""ListTransactions with a pattern: what a match may cost is bounded, and so is each step."""

from __future__ import annotations

import pytest

from ottla.broker.handlers import list_transactions as handler
from ottla.coordinator.groups.consumer.pattern import Pattern
from ottla.coordinator.transactions.transaction_listing import Filters, list_transactions
from ottla.model.errors import ErrorCode
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.init_producer_id import InitProducerIdRequest
from ottla.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from tests.support.broker import Broker
from tests.support.request_cost import cost_of

LARGE = "([ab]{0,100}c?){9}"
"""A pattern with thousands of instructions."""


@pytest.fixture
def broker() -> Broker:
    made = Broker()
    cost_of(made, FindCoordinatorRequest(key_type=1, coordinator_keys=["a"]), 4)
    return made


def init(broker: Broker, *names: str) -> None:
    for name in names:
        request = InitProducerIdRequest(transactional_id=name, transaction_timeout=1000)
        cost_of(broker, request, 5)


def listed(broker: Broker, pattern: str) -> ListTransactionsResponse:
    response = broker.connect().ask(ListTransactionsRequest(transactional_id_pattern=pattern), 2)
    assert isinstance(response, ListTransactionsResponse)
    return response


def test_ids_that_match_are_listed(broker: Broker) -> None:
    init(broker, "ab", "ba", "x", "a" * 8000)
    response = listed(broker, "[ab]*")
    assert response.error_code == ErrorCode.NONE
    found = {each.transactional_id for each in response.transaction_states}
    assert found == {"ab", "ba", "a" * 8000}


def test_a_large_pattern_is_refused_if_an_id_is_very_long(broker: Broker) -> None:
    init(broker, "ab", "x")
    found = listed(broker, LARGE).transaction_states
    assert [each.transactional_id for each in found] == ["ab"]
    init(broker, "a" * 8000)
    assert Pattern(LARGE).cost("a" * 8000) > handler._MOST_COST
    response = listed(broker, LARGE)
    assert response.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert not response.transaction_states


def test_a_step_ends_before_matches_take_long(broker: Broker) -> None:
    count = 40
    init(broker, *(f"a{number}" for number in range(count)))
    matched: list[str] = []

    def matches(name: str) -> bool:
        matched.append(name)
        return True

    filters = Filters((), (), -1, matches, lambda name: 150_000)
    runtimes = list(broker.node.transactions.host.active_runtimes())
    found = 0
    for runtime in runtimes:
        steps = list_transactions(runtime.shard, filters)
        before = len(matched)
        for _ in steps:
            assert len(matched) - before <= 1
            before = len(matched)
        found = len(matched)
    assert found == count
