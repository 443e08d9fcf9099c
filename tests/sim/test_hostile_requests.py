"""Odd and large requests to a cluster, on the listeners of clients and of controllers.

Nothing that a peer sends may end a node, and no request may hold its loop: every API of both
listeners gets random requests that are well-formed, damaged ones, and ones with very long arrays.
A node that raises an error ends the simulation, and so the test.

OTTLA_FUZZ_CASES and OTTLA_FUZZ_SEED make longer and other runs.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping
from random import Random
from typing import Any

import pytest

from ottla.broker.controller_handlers import CONTROLLER_SERVED
from ottla.broker.handlers import SERVED, Served
from ottla.model.ids import METADATA_TOPIC, METADATA_TOPIC_ID, OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from ottla.sim.cluster import CONTROLLER, SimCluster
from ottla.sim.machine import LISTENER
from ottla.wire.api_table import ApiKey
from ottla.wire.apis import request_class
from ottla.wire.codec import encoder
from ottla.wire.header import request_header
from ottla.wire.message import Message
from ottla.wire.messages.envelope import EnvelopeRequest
from tests.harness.mutation import Mutator
from tests.sim.test_quorum_of_several import NODES, active
from tests.sim.test_replication import create, started
from tests.support.random_requests import RandomRequests, depth_of, with_long_arrays
from tests.support.request_cost import count_calls

CASES = int(os.environ.get("OTTLA_FUZZ_CASES", "6000")) // 10
SEED = int(os.environ.get("OTTLA_FUZZ_SEED", "1"))
MANY = 1000
MOST_SENDERS = 20
MOST_CALLS = 12_000
"""Calls in one wake-up. Some thousands take a millisecond."""
TIMES_REQUEST = 64
CONSTANT_BYTES = 256 * 1024
APIS: dict[str, Mapping[int, Served]] = {LISTENER: SERVED, CONTROLLER: CONTROLLER_SERVED}
QUORUM = (
    ApiKey.VOTE,
    ApiKey.BEGIN_QUORUM_EPOCH,
    ApiKey.END_QUORUM_EPOCH,
    ApiKey.FETCH,
    ApiKey.FETCH_SNAPSHOT,
    ApiKey.DESCRIBE_QUORUM,
)
"""What voters send each other, and whoever wants to look like one."""
REMOVES = {ApiKey.UNREGISTER_BROKER, ApiKey.REMOVE_RAFT_VOTER}
"""They do what they are asked for, and then the cluster has fewer nodes."""


class Sender:
    """A connection of a client or a peer, which keeps what comes back."""

    def __init__(self, cluster: SimCluster, number: int, listener: str) -> None:
        loop = cluster.machine(number).loop
        assert loop is not None
        self._cluster, self._loop = cluster, loop
        self.received = bytearray()
        self.is_closed = False
        self._stream = loop.accept_peer(listener, self._receive, self._close)

    def _receive(self, data: bytes) -> None:
        self.received += data

    def _close(self) -> None:
        self.is_closed = True

    def send(self, frame: bytes) -> None:
        self._stream.inbox += struct.pack(">i", len(frame)) + frame

    @property
    def is_done(self) -> bool:
        """Whether a whole answer is there, or the broker has closed the connection."""
        if self.is_closed or len(self.received) < 4:
            return self.is_closed
        return len(self.received) >= 4 + int.from_bytes(self.received[:4], "big")

    def close(self) -> None:
        if not self.is_closed:
            self._loop.close(self._stream)


def known_values(cluster: SimCluster) -> dict[str, tuple[Any, ...]]:
    image = cluster.node(1).image
    return {
        "cluster_id": (image.cluster_id,),
        "topic_name": (METADATA_TOPIC, "t"),
        "topic": (METADATA_TOPIC, "t"),
        "name": (METADATA_TOPIC, "t"),
        "topic_id": (METADATA_TOPIC_ID, image.topics["t"].topic_id),
        "broker_epoch": (image.brokers[1].broker_epoch,),
    }


def client_values(cluster: SimCluster) -> dict[str, tuple[Any, ...]]:
    """Return values for the requests of clients: ids that exist, settings, and impossible ones."""
    names = ("t", "t", "t", OFFSETS_TOPIC, TRANSACTIONS_TOPIC, "new")
    producers = (0, 1, 2, 1000, 2000, 3000, -1)
    epochs = (0, 0, 1, 2, -1, 2**15 - 1)
    numbers = ("0", "1", "-1", "1e308", "nan", "9" * 400, "1000000")
    return {
        **known_values(cluster),
        **dict.fromkeys(("name", "topic", "topic_name"), names),
        **dict.fromkeys(("group_id", "group"), ("g", "h")),
        **dict.fromkeys(("transactional_id", "v3_and_below_transactional_id"), ("x", "y")),
        **dict.fromkeys(("producer_id", "v3_and_below_producer_id"), producers),
        **dict.fromkeys(("producer_epoch", "v3_and_below_producer_epoch"), epochs),
        **dict.fromkeys(("partition_index", "partition", "index"), (0, 0, 1, 2)),
        "coordinator_keys": (["x", "g"], ["x"], ["g"]),
        "key_type": (0, 1),
        "transaction_timeout": (1, 1000, 60_000),
        "member_id": ("", "m"),
        "member_epoch": (0, 0, 1, -1, -2),
        "session_timeout": (6000, 10_000),
        "subscribed_topic_regex": ("t.*", "(", "((.?){1000})"),
        "replication_factor": (1, 3, -1),
        "num_partitions": (1, 2, -1),
        "acks": (-1, 1, 0),
        "resource_type": (2, 4, 32),
        "resource_name": ("t", "1", ""),
        "config_operation": (0, 1),
        "value": ("compact", "delete", *numbers),
    }


SETTINGS = (
    *("retention.ms", "segment.ms", "cleanup.policy", "max.compaction.lag.ms", "segment.bytes"),
    *("log.cleaner.threads", "log.cleaner.io.max.bytes.per.second", "log.retention.ms"),
    *(
        "log.cleaner.min.compaction.lag.ms",
        "min.insync.replicas",
        "leader.replication.throttled.rate",
    ),
)
CHANGES_SETTINGS = {ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS}


@pytest.mark.parametrize("seed", range(SEED, SEED + 2))
def test_clients_that_know_more_end_no_node(seed: int) -> None:
    cluster = started(seed)
    create(cluster, "t", 3)
    chance = Random(seed)
    keys = sorted(SERVED.keys() - REMOVES - {ApiKey.DELETE_TOPICS})
    senders: list[Sender] = []
    for _ in range(CASES):
        key = chance.choice(keys)
        known = client_values(cluster)
        if key in CHANGES_SETTINGS:
            known["name"] = SETTINGS
        requests = RandomRequests(chance, known)
        frame = requests.frame(key, chance.randint(SERVED[key].oldest, SERVED[key].newest))
        senders.append(Sender(cluster, chance.choice(NODES), LISTENER))
        senders[-1].send(frame)
        cluster.run_for(chance.choice((0, 1, 5, 50)))
        if len(senders) > MOST_SENDERS:
            senders.pop(0).close()
    restart(cluster)


@pytest.mark.parametrize("listener", APIS)
def test_odd_requests_end_no_node(listener: str) -> None:
    cluster = started(SEED)
    create(cluster, "t", 3)
    chance = Random(SEED)
    requests = RandomRequests(chance, known_values(cluster))
    keys = sorted(set(APIS[listener]) - REMOVES)
    for _ in range(CASES):
        key = chance.choice(keys)
        served = APIS[listener][key]
        frame = requests.frame(key, chance.randint(served.oldest, served.newest))
        if chance.random() < 0.3:
            frame = Mutator(chance.randrange(2**30), [frame]).frame()
        sender = Sender(cluster, chance.choice(NODES), listener)
        sender.send(frame)
        cluster.run_for(5)
        sender.close()
    cluster.run_for(30_000)  # some of them have led to elections
    cluster.run_until(lambda: active(cluster) is not None)
    create(cluster, "after", 1, replicas=1)
    restart(cluster)


def quorum_values(cluster: SimCluster) -> dict[str, tuple[Any, ...]]:
    """Return values for the requests of voters: epochs and offsets near those of the quorum."""
    members = [cluster.node(number).controller.member for number in NODES]
    epoch = max(each.driver.epoch for each in members if each is not None)
    epochs = (epoch, epoch, epoch + 1, epoch + 1, epoch + 2, epoch - 1, epoch + 2**30, 2**31 - 1)
    offsets = (0, 1, cluster.node(1).image.end_offset, 2**62)
    nodes = (*NODES, len(NODES) + 1)
    return {
        "cluster_id": (cluster.node(1).image.cluster_id,),
        "topic_name": (METADATA_TOPIC,),
        "name": (METADATA_TOPIC, "CONTROLLER"),
        "topic_id": (METADATA_TOPIC_ID,),
        "partition_index": (0,),
        "partition": (0,),
        **dict.fromkeys(("leader_id", "replica_id", "voter_id", "candidate_id"), nodes),
        **dict.fromkeys(("replica_epoch", "leader_epoch", "current_leader_epoch"), epochs),
        **dict.fromkeys(("last_fetched_epoch", "last_offset_epoch", "epoch"), epochs),
        **dict.fromkeys(("fetch_offset", "last_offset", "end_offset", "position"), offsets),
    }


@pytest.mark.parametrize("seed", range(SEED, SEED + 3))
def test_false_voters_end_no_node_and_not_the_quorum(seed: int) -> None:
    cluster = started(seed)
    chance = Random(seed)
    for _ in range(CASES):
        requests = RandomRequests(chance, quorum_values(cluster))
        key = chance.choice(QUORUM)
        served = CONTROLLER_SERVED[key]
        frame = requests.frame(key, chance.randint(served.oldest, served.newest))
        sender = Sender(cluster, chance.choice(NODES), CONTROLLER)
        sender.send(frame)
        cluster.run_for(chance.choice((0, 1, 5, 100)))
        sender.close()
    cluster.run_until(lambda: active(cluster) is not None, 60_000)
    restart(cluster)


def restart(cluster: SimCluster) -> None:
    """Kill all nodes; what they have stored must let them start again."""
    for number in NODES:
        cluster.kill(number)
    for number in NODES:
        cluster.start(number)
    cluster.run_for(30_000)
    cluster.run_until(lambda: active(cluster) is not None, 60_000)


def large_requests(listener: str) -> list[Any]:
    return [
        pytest.param(listener, key, depth, id=f"{listener} {ApiKey(key).name} {depth}")
        for key in sorted(APIS[listener])
        for depth in range(max(1, depth_of(request_class(key))))
    ]


@pytest.mark.parametrize(
    ("listener", "key", "depth"), [*large_requests(CONTROLLER), *large_requests(LISTENER)]
)
def test_long_arrays_hold_no_loop(large: SimCluster, listener: str, key: int, depth: int) -> None:
    """The active controller decides. Others pass requests of clients on to it."""
    version = APIS[listener][key].newest
    known = {name: values[0] for name, values in known_values(large).items()}
    request: Message = with_long_arrays(request_class(key), version, MANY, known, depth=depth)
    if isinstance(request, EnvelopeRequest):
        request.request_data = bytes(MANY)
    frame = request_header(key, version, 1, "c") + encoder(type(request), version)(request)
    leader = active(large)
    assert leader is not None
    other = leader % len(NODES) + 1
    for time, number in enumerate((leader, leader, other)):
        sender = Sender(large, number, listener)
        sender.send(frame)
        most = Most(large)
        large.run_until(lambda s=sender: s.is_done, 20_000)  # type: ignore[misc]
        most.stop()
        sender.close()
        if time:  # the first one imports and compiles what it needs
            assert most.calls <= MOST_CALLS, f"a wake-up of broker {most.number}"
        assert len(sender.received) <= TIMES_REQUEST * len(frame) + CONSTANT_BYTES


class Most:
    """Counts the calls of wake-ups until it is stopped, and keeps the most."""

    def __init__(self, cluster: SimCluster) -> None:
        self.calls = self.number = 0
        self._loops: list[tuple[int, Any]] = [(n, cluster.machine(n).loop) for n in NODES]
        for number, loop in self._loops:
            self._count(number, loop)

    def _count(self, number: int, loop: Any) -> None:
        wake = loop.wake

        def counted(writable: Any) -> None:
            calls = count_calls(lambda: wake(writable))
            if calls > self.calls:
                self.calls, self.number = calls, number

        loop.wake = counted

    def stop(self) -> None:
        for _, loop in self._loops:
            del loop.wake


@pytest.fixture(scope="module")
def large() -> SimCluster:
    """Return a cluster whose nodes pause after every step of long work."""
    cluster = started(SEED)
    create(cluster, "t", 3)
    for number in NODES:
        cluster.node(number).sliced_work.slice_ms = 0
    return cluster
