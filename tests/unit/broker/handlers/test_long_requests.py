"""No request holds the loop, however long its lists are: what is done with all items is in steps.

Every API that is served gets requests made from its schema, with very long lists at each depth, of
one item many times or of many items. Every step has a wake-up of its own, and none of them may make
calls for each of the items. `test_request_cost.py` has requests that make more sense.
"""

from __future__ import annotations

import gc
from collections.abc import Mapping
from typing import Any

import pytest

from ottla.broker.connection import Connection
from ottla.broker.controller_handlers import CONTROLLER_SERVED
from ottla.broker.handlers import SERVED, Served
from ottla.broker.pipeline import Pipeline
from ottla.wire.api_table import ApiKey
from ottla.wire.apis import request_class
from ottla.wire.codec import encoder
from ottla.wire.header import request_header
from ottla.wire.messages import create_topics as ct
from ottla.wire.messages import find_coordinator as fc
from tests.support.broker import Broker
from tests.support.random_requests import depth_of, with_long_arrays
from tests.support.request_cost import cost_of, count_calls

MANY = 5000
MOST_CALLS = 12_000
"""Two for each item: that is a millisecond. Steps that do more with each item have fewer items."""
MOST_WAKE_UPS = 200_000
CONTROLLER = "controllers"
LISTENERS: dict[str, Mapping[int, Served]] = {
    "clients": SERVED,
    CONTROLLER: {
        key: CONTROLLER_SERVED[key]
        for key in (ApiKey.ALTER_PARTITION, ApiKey.ASSIGN_REPLICAS_TO_DIRS)
    },
}
"""What the quorum and the membership answer needs a cluster (`tests/sim/test_hostile_requests`)."""

MOST_GARBAGE = 1000
"""The items of a request may be in one cycle, but each may not be in one with many objects."""

KNOWN: dict[str, Any] = {
    **dict.fromkeys(("name", "topic", "topic_name", "resource_name", "member_id"), "t"),
    **dict.fromkeys(("group_id", "transactional_id", "v3_and_below_transactional_id"), "g"),
    **dict.fromkeys(("generation_id_or_member_epoch", "generation_id", "session_epoch"), -1),
    **dict.fromkeys(("num_partitions", "replication_factor", "acks"), 1),
    "validate_only": True,
    "allow_auto_topic_creation": False,
    "resource_type": 2,
    "session_timeout": 10_000,
    "max_wait": 0,
}


def cases() -> list[Any]:
    return [
        pytest.param(name, key, served.newest, depth, distinct, id=f"{name} {key} {depth} {d}")
        for name, apis in LISTENERS.items()
        for key, served in sorted(apis.items())
        for depth in range(depth_of(request_class(key)))
        for d, distinct in (("repeated", False), ("distinct", True))
    ]


@pytest.fixture(scope="module")
def broker() -> Broker:
    made = Broker()
    topic = ct.CreatableTopic(name="t", num_partitions=3, replication_factor=1)
    cost_of(made, ct.CreateTopicsRequest(topics=[topic]), 7)
    for kind in (0, 1):
        cost_of(made, fc.FindCoordinatorRequest(key_type=kind, coordinator_keys=["g"]), 4)
    made.node.sliced_work.slice_ms = 0
    return made


@pytest.mark.parametrize(("listener", "key", "version", "depth", "distinct"), cases())
def test_no_step_is_for_all_items(
    broker: Broker, listener: str, key: int, version: int, depth: int, distinct: bool
) -> None:
    image = broker.node.image
    known = {
        **KNOWN,
        "topic_id": image.topics["t"].topic_id,
        "broker_id": broker.node.node_id,
        "broker_epoch": image.brokers[broker.node.node_id].broker_epoch,
    }
    node = broker.node
    pipeline = node.controller_pipeline if listener == CONTROLLER else node.pipeline

    def request(count: int) -> bytearray:
        kind = request_class(key)
        made = with_long_arrays(kind, version, count, known, depth=depth, distinct=distinct)
        return bytearray(request_header(key, version, 1, "c") + encoder(kind, version)(made))

    most_calls(broker, pipeline, request(1000))  # imports and compiles what it needs
    most_items = LISTENERS[listener][key].most_items
    if most_items < MANY:  # more are refused
        assert most_calls(broker, pipeline, request(most_items)) <= MOST_CALLS
    assert most_calls(broker, pipeline, request(MANY)) <= MOST_CALLS


@pytest.mark.parametrize(
    ("key", "depth"),
    [(key, depth) for key in sorted(SERVED) for depth in range(depth_of(request_class(key)))],
)
def test_items_leave_no_garbage_in_cycles(broker: Broker, key: int, depth: int) -> None:
    """While large requests come, no collection looks for it."""
    kind, version = request_class(key), SERVED[ApiKey(key)].newest
    made = with_long_arrays(kind, version, 400, KNOWN, depth=depth, distinct=True)
    encoded = request_header(key, version, 1, "c") + encoder(kind, version)(made)
    del made
    most_calls(broker, broker.node.pipeline, bytearray(encoded))  # imports what it needs
    gc.collect()
    gc.disable()
    try:
        most_calls(broker, broker.node.pipeline, bytearray(encoded))
        assert gc.collect() <= MOST_GARBAGE
    finally:
        gc.enable()


def most_calls(broker: Broker, pipeline: Pipeline, frame: bytearray) -> int:
    """Return the calls of the wake-up that had most, until the request is answered or refused."""
    node, connection = broker.node, Connection("127.0.0.1", "PLAINTEXT")

    def handle() -> None:
        pipeline.handle(connection, frame, memoryview(frame), 0, len(frame))
        node.settle()

    def wake_up() -> None:
        node.advance()
        node.settle()

    broker.clock.now_ms += 1
    node.advance()
    most, wake_ups = count_calls(handle), 1
    while len(node.sliced_work) or not (connection.out or connection.closing):
        broker.clock.now_ms += 1
        most = max(most, count_calls(wake_up))
        wake_ups += 1
        assert wake_ups < MOST_WAKE_UPS, "no answer"
    return most
