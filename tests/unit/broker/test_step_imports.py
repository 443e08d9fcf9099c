"""What a broker imports later is imported in steps, each of a few modules."""

from __future__ import annotations

import subprocess
import sys

import pytest

from ottla.broker import step_imports
from ottla.broker.handlers import SERVED
from ottla.wire.api_table import ApiKey
from ottla.wire.messages.api_versions import ApiVersionsRequest
from ottla.wire.messages.describe_quorum import DescribeQuorumRequest
from ottla.wire.messages.list_groups import ListGroupsRequest
from tests.support.broker import Broker

MOST_MODULES = 13
"""In a step: about three milliseconds."""

PROGRAM = """
import sys
import ottla.server.main
import ottla.broker.handlers.create_topics
from ottla.broker.step_imports import import_in_steps

modules = sys.argv[1:]
counts = []
before = len(sys.modules)
for _ in import_in_steps(modules):
    counts.append(len(sys.modules) - before)
    before = len(sys.modules)
assert modules[-1] in sys.modules
assert "_hashlib" not in sys.modules, "OpenSSL is not needed"
print(max(counts), sum(counts))
"""


FIRST_USE = """
import sys
import ottla.server.main
import ottla.broker.handlers.api_versions
from ottla.broker.handlers import SERVED
from ottla.broker.step_imports import import_in_steps

key, name = int(sys.argv[1]), sys.argv[2]
modules = (*SERVED[key].modules, f"ottla.broker.handlers.{name}")
if "ottla.coordinator.transactions.records" in modules:
    modules += ("ottla.broker.transactions",)
if "ottla.coordinator.groups.records" in modules:
    modules += ("ottla.broker.groups",)
if "ottla.raft.messages" in modules:
    modules += ("ottla.controller.quorum.replies_to_wire",)
counts = []
before = len(sys.modules)
for _ in import_in_steps(modules):
    counts.append(len(sys.modules) - before)
    before = len(sys.modules)
print(max(counts))
"""
"""Imports what the first request of an API needs, and prints how many modules one step imports."""


IN_A_NODE = """
import sys
import ottla.server.main
from ottla.broker.connection import Connection
from ottla.broker.node import Node
from ottla.config.broker import BrokerConfig
from ottla.testing.fakes import FakeClock, fake_ports
from ottla.wire.codec import encoder
from ottla.wire.header import request_header
from ottla.wire.messages import consumer_group_heartbeat, create_topics, find_coordinator
from ottla.wire.messages import init_producer_id, write_txn_markers

topic = create_topics.CreatableTopic(
    name="__consumer_offsets", num_partitions=1, replication_factor=1
)
end = write_txn_markers.WritableTxnMarkerTopic(name="__consumer_offsets", partition_indexes=[0])
REQUESTS = {
    "topic": create_topics.CreateTopicsRequest(topics=[topic]),
    "group": find_coordinator.FindCoordinatorRequest(coordinator_keys=["g"]),
    "transactions": find_coordinator.FindCoordinatorRequest(key_type=1, coordinator_keys=["g"]),
    "producer": init_producer_id.InitProducerIdRequest(transactional_id=None),
    "transactional producer": init_producer_id.InitProducerIdRequest(transactional_id="t"),
    "consumer": consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
        group_id="g", member_id="m", rebalance_timeout=10_000, subscribed_topic_names=["t"],
        topic_partitions=[],
    ),
    "markers": write_txn_markers.WriteTxnMarkersRequest(
        markers=[write_txn_markers.WritableTxnMarker(producer_id=1, topics=[end])]
    ),
}
config = BrokerConfig({"log.dirs": "/data", "node.id": "1"})
clock = FakeClock()
node = Node(config, config.network.advertised_listeners, fake_ports(clock=clock))
node.start()
node.sliced_work.slice_ms = 0  # each step has a wake-up of its own
most = 0


def ask(name):
    global most
    request, connection = REQUESTS[name], Connection("127.0.0.1", "PLAINTEXT")
    version = type(request).MAX_VERSION
    body = encoder(type(request), version)(request)
    frame = bytearray(request_header(request.API_KEY, version, 1, "c") + body)
    before = len(sys.modules)
    node.handle(connection, frame, memoryview(frame), 0, len(frame))
    node.settle()
    while not connection.out or len(node.sliced_work):
        assert not connection.closing, connection.problem
        most = max(most, len(sys.modules) - before)
        before = len(sys.modules)
        clock.now_ms += 1
        node.advance()
        node.settle()
    most = max(most, len(sys.modules) - before)


for name in sys.argv[1:]:
    ask(name)
print(most)
"""
"""Sends first requests to a node in memory. Prints how many modules a wake-up imports at most."""


@pytest.mark.parametrize(
    "names",
    [
        ["topic", "markers"],
        ["group", "consumer"],
        ["transactions", "transactional producer"],
        ["producer", "transactional producer"],
    ],
    ids=" ".join,
)
def test_a_wake_up_imports_a_few_modules(names: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", IN_A_NODE, *names], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) <= MOST_MODULES


@pytest.mark.parametrize("key", [key for key, served in SERVED.items() if served.modules])
def test_the_first_request_of_an_api_imports_a_few_modules_in_a_step(key: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FIRST_USE, str(int(key)), ApiKey(key).name.lower()],
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(done.stdout) <= MOST_MODULES


def test_all_apis_of_coordinators_and_of_the_quorum_import_in_steps() -> None:
    groups = {key for key, served in SERVED.items() if step_imports.GROUPS[0] in served.modules}
    quorum = {key for key, served in SERVED.items() if served.modules == step_imports.QUORUM}
    assert {ApiKey.JOIN_GROUP, ApiKey.OFFSET_FETCH, ApiKey.CONSUMER_GROUP_HEARTBEAT} < groups
    assert quorum == {ApiKey.DESCRIBE_QUORUM, ApiKey.ADD_RAFT_VOTER, ApiKey.REMOVE_RAFT_VOTER}
    assert SERVED[ApiKey.CREATE_TOPICS].modules == step_imports.TOPICS


def test_a_first_request_waits_for_its_modules_in_its_place() -> None:
    broker = Broker()
    client = broker.connect()
    broker.node.sliced_work.slice_ms = 0  # each step has a wake-up of its own
    first = client.send(ApiVersionsRequest())
    second = client.send(ListGroupsRequest())
    assert not client.connection.takes_requests
    broker.node.settle()
    assert client.ids() == [first]
    wake_ups = 0
    while not client.connection.takes_requests:
        broker.pass_time(1)
        wake_ups += 1
    assert wake_ups > len(step_imports.GROUPS) // 2
    assert client.ids() == [second]
    third = client.send(ApiVersionsRequest())
    broker.node.settle()
    assert client.ids() == [third]


def test_an_invalid_first_request_closes_its_connection_after_the_imports() -> None:
    broker = Broker()
    broker.node.sliced_work.slice_ms = 0
    client = broker.connect()
    request = DescribeQuorumRequest(topics=[])
    client.send(request)
    frame = client.kept[-1]
    other = broker.connect()
    broker.node.handle(other.connection, frame, memoryview(frame), 0, len(frame) - 3)
    for _ in range(20):
        broker.pass_time(1)
    assert other.connection.closing
    assert other.connection.problem is not None
    assert not client.connection.closing
    assert client.ids() == [1]


def test_a_connection_that_is_closed_during_the_imports_is_forgotten() -> None:
    broker = Broker()
    broker.node.sliced_work.slice_ms = 0
    client = broker.connect()
    client.send(ListGroupsRequest())
    broker.node.close_connection(client.connection)
    for _ in range(20):
        broker.pass_time(1)
    assert client.connection.out == []
    assert len(broker.node.sliced_work) == 0


@pytest.mark.parametrize("name", ["GROUPS", "TRANSACTIONS", "CLEANER"])
def test_no_step_imports_everything(name: str) -> None:
    modules = getattr(step_imports, name)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *modules], capture_output=True, text=True, check=True
    )
    most, total = map(int, done.stdout.split())
    assert most <= MOST_MODULES, f"{most} of {total}"
    assert total > 10
