"""Brokers that send requests to each other over a simulated network."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from random import Random

import pytest

from ottla.model.errors import ErrorCode
from ottla.ports import Peer, Response
from ottla.records.record import build_batch
from ottla.sim.cluster import PORT, SimCluster, host_of
from ottla.wire.apis import ApiKey, response_class
from ottla.wire.codec import decoder, encoder
from ottla.wire.message import Message
from ottla.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ottla.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

VERSIONS = {ApiKey.API_VERSIONS: 3, ApiKey.METADATA: 9, ApiKey.PRODUCE: 9, ApiKey.FETCH: 12}
API_VERSIONS = ApiVersionsRequest(client_software_name="sim", client_software_version="1")
METADATA = MetadataRequest(topics=[MetadataRequestTopic(name="t")])


def connect(cluster: SimCluster, one: int, other: int) -> Peer:
    return cluster.node(one).ports.network.connect(host_of(other), PORT, f"broker-{one}")


class Answers(list[Message | OSError]):
    """What came back, in the order it came."""

    def send(self, peer: Peer, request: Message, timeout_ms: float = 1000) -> None:
        key = ApiKey(request.API_KEY)
        version = VERSIONS[key]

        def done(result: Response | OSError) -> None:
            if isinstance(result, OSError):
                self.append(result)
            else:
                buffer, _, start, end = result
                message, stop = decoder(response_class(key), version)(
                    bytes(buffer[start:end]), 0, end - start
                )
                assert stop == end - start
                self.append(message)

        peer.send(key, version, encoder(type(request), version)(request), timeout_ms, done)


def produce(cluster: SimCluster, number: int, value: bytes) -> ProduceRequest:
    batch = build_batch([(None, value, cluster.machine(number).clock.wall_ms(), ())])
    data = [PartitionProduceData(index=0, records=bytes(batch))]
    topic = TopicProduceData(name="t", partition_data=data)
    return ProduceRequest(acks=-1, timeout=1000, topic_data=[topic])


def fetch(max_wait_ms: int = 0, offset: int = 0) -> FetchRequest:
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    topic = FetchTopic(topic="t", partitions=[partition])
    return FetchRequest(
        max_wait=max_wait_ms, min_bytes=1, max_bytes=1 << 20, session_epoch=-1, topics=[topic]
    )


@pytest.mark.parametrize("seed", range(5))
def test_a_pipeline_of_requests_is_answered_in_order(seed: int) -> None:
    cluster, answers = SimCluster(3, seed), Answers()
    peer = connect(cluster, 1, 2)
    requests = [API_VERSIONS, METADATA, produce(cluster, 2, b"v" * 100_000), fetch(500)]
    for request in requests:
        answers.send(peer, request)
    cluster.run_until(lambda: len(answers) == len(requests))
    versions, metadata, produced, fetched = answers
    assert isinstance(versions, ApiVersionsResponse)
    assert isinstance(metadata, MetadataResponse)
    assert metadata.brokers[0].host == host_of(2)
    assert isinstance(produced, ProduceResponse)
    assert produced.responses[0].partition_responses[0].error_code == ErrorCode.NONE
    assert isinstance(fetched, FetchResponse)
    assert len(fetched.responses[0].partitions[0].records or b"") > 100_000


def test_a_response_is_overwritten_when_the_wake_up_ends() -> None:
    cluster, kept, copies = SimCluster(2), [], []

    def done(result: Response | OSError) -> None:
        assert isinstance(result, Response)
        _, view, start, end = result
        kept.append(view[start:end])
        copies.append(bytes(view[start:end]))

    peer = connect(cluster, 1, 2)
    body = encoder(ApiVersionsRequest, 3)(API_VERSIONS)
    peer.send(ApiKey.API_VERSIONS, 3, body, 1000, done)
    cluster.run_until(lambda: bool(kept))
    assert len(copies[0]) > 100
    assert bytes(kept[0]) == b"\xee" * len(copies[0])


def test_clocks_differ_and_time_is_one() -> None:
    cluster = SimCluster(3)
    before = [cluster.machine(number).clock.monotonic_ms() for number in (1, 2, 3)]
    assert len(set(before)) == 3
    cluster.run_for(500)
    after = [cluster.machine(number).clock.monotonic_ms() for number in (1, 2, 3)]
    assert [late - early for early, late in zip(before, after, strict=True)] == [500, 500, 500]


def test_a_long_poll_to_a_peer_is_answered_when_there_is_data() -> None:
    cluster, answers, other = SimCluster(3), Answers(), Answers()
    cluster.ask(2, METADATA, 9)
    answers.send(connect(cluster, 1, 2), fetch(max_wait_ms=20_000), timeout_ms=30_000)
    cluster.run_for(5000)
    assert answers == []
    other.send(connect(cluster, 3, 2), produce(cluster, 2, b"v"))
    cluster.run_until(lambda: bool(answers and other), 1000)
    assert isinstance(answers[0], FetchResponse)


def test_a_cut_network_times_requests_out_and_heals() -> None:
    cluster, answers = SimCluster(2), Answers()
    peer = connect(cluster, 1, 2)
    answers.send(peer, API_VERSIONS)
    cluster.run_until(lambda: len(answers) == 1)
    cluster.cut(1, 2)
    answers.send(peer, METADATA, timeout_ms=300)
    cluster.run_until(lambda: len(answers) == 2, 301)
    assert isinstance(answers[1], TimeoutError)
    answers.send(peer, API_VERSIONS, timeout_ms=300)  # a new connection, which is not made
    cluster.run_until(lambda: len(answers) == 3)
    assert isinstance(answers[2], TimeoutError)
    answers.send(peer, API_VERSIONS, timeout_ms=5000)
    cluster.run_for(1000)
    cluster.heal(1, 2)
    cluster.run_until(lambda: len(answers) == 4)
    assert isinstance(answers[3], ApiVersionsResponse)


def test_a_killed_broker_is_heard_of_at_once_and_reached_again_later() -> None:
    cluster, answers = SimCluster(2), Answers()
    peer = connect(cluster, 1, 2)
    answers.send(peer, METADATA)
    cluster.run_until(lambda: len(answers) == 1)
    answers.send(peer, fetch(max_wait_ms=20_000), timeout_ms=30_000)
    cluster.run_for(1000)
    cluster.kill(2)
    cluster.run_until(lambda: len(answers) == 2, 100)
    assert isinstance(answers[1], ConnectionError)
    answers.send(peer, API_VERSIONS)
    cluster.run_until(lambda: len(answers) == 3, 100)
    assert isinstance(answers[2], ConnectionError)
    cluster.start(2)
    answers.send(peer, API_VERSIONS)
    cluster.run_until(lambda: len(answers) == 4)
    assert isinstance(answers[3], ApiVersionsResponse)


def test_attempts_to_connect_back_off() -> None:
    cluster, answers = SimCluster(2), Answers()
    peer = connect(cluster, 1, 2)
    cluster.kill(2)
    times = []
    for count in range(1, 10):
        answers.send(peer, API_VERSIONS, timeout_ms=10_000)
        cluster.run_until(lambda count=count: len(answers) == count)  # type: ignore[misc]
        times.append(cluster.timeline.now_ms)
    gaps = [late - early for early, late in pairwise(times)]
    assert gaps[0] < 100
    assert all(700 <= gap <= 1300 for gap in gaps[-2:])


def test_a_machine_without_power_is_silent_until_it_runs_again() -> None:
    cluster, answers = SimCluster(2), Answers()
    peer = connect(cluster, 1, 2)
    answers.send(peer, METADATA)
    cluster.run_until(lambda: len(answers) == 1)
    answers.send(peer, fetch(max_wait_ms=20_000), timeout_ms=60_000)
    cluster.run_for(100)
    cluster.lose_power(2)
    cluster.run_for(10_000)
    assert len(answers) == 1
    cluster.start(2)
    answers.send(peer, API_VERSIONS, timeout_ms=60_000)
    cluster.run_until(lambda: len(answers) == 3, 1000)
    assert all(isinstance(answer, ConnectionResetError) for answer in answers[1:])


def test_dropped_connections_fail_what_is_in_flight() -> None:
    cluster, answers = SimCluster(3), Answers()
    one, other = connect(cluster, 1, 2), connect(cluster, 1, 3)
    for peer in (one, other):
        answers.send(peer, METADATA)
    cluster.run_until(lambda: len(answers) == 2)
    for peer in (one, other):
        answers.send(peer, fetch(max_wait_ms=2000), timeout_ms=30_000)
    cluster.run_for(1000)
    cluster.drop(1, 2)
    cluster.run_until(lambda: len(answers) == 3, 100)
    assert isinstance(answers[2], ConnectionResetError)
    cluster.run_until(lambda: len(answers) == 4)
    assert isinstance(answers[3], FetchResponse)


@pytest.mark.parametrize("seed", range(3))
def test_a_seed_is_a_run(seed: int) -> None:
    def run() -> list[tuple[float, str]]:
        cluster, answers, seen = SimCluster(3, seed), Answers(), []
        for one, other in ((1, 2), (2, 3), (3, 1)):
            peer = connect(cluster, one, other)
            for request in (API_VERSIONS, METADATA, fetch(max_wait_ms=50)):
                answers.send(peer, request)
        for _ in range(200):
            cluster.run_for(1)
            seen.append((cluster.timeline.now_ms, repr(answers)))
        return seen

    assert run() == run()


class Accounts:
    """Counts what became of every request of a run."""

    def __init__(self, cluster: SimCluster) -> None:
        self._cluster = cluster
        self._started: dict[int, tuple[float, float]] = {}
        self.outcomes: Counter[str] = Counter()
        self._numbers = 0

    @property
    def open(self) -> int:
        return len(self._started)

    def send(self, sender: int, peer: Peer, request: Message, timeout_ms: float) -> None:
        """Have a broker send a request when its loop wakes up."""
        key = ApiKey(request.API_KEY)
        version = VERSIONS[key]
        self._numbers += 1
        number = self._numbers
        self._started[number] = 0.0, 0.0

        def done(result: Response | OSError) -> None:
            start_ms, allowed_ms = self._started.pop(number)
            took_ms = self._cluster.timeline.now_ms - start_ms
            assert took_ms <= allowed_ms, "a request is answered, or times out"
            if isinstance(result, OSError):
                if isinstance(result, TimeoutError):
                    assert took_ms == allowed_ms
                self.outcomes[type(result).__name__] += 1
                return
            buffer, _, start, end = result
            body = bytes(buffer[start:end])
            message, stop = decoder(response_class(key), version)(body, 0, len(body))
            assert stop == len(body)
            self.outcomes[type(message).__name__] += 1

        def act() -> None:
            self._started[number] = self._cluster.timeline.now_ms, timeout_ms
            peer.send(key, version, encoder(type(request), version)(request), timeout_ms, done)

        loop = self._cluster.machine(sender).loop
        assert loop is not None
        loop.call(act)


@pytest.mark.parametrize("first", range(0, 20, 5))
def test_every_request_has_one_outcome_whatever_the_network_does(first: int) -> None:
    outcomes: Counter[str] = Counter()
    for seed in range(first, first + 5):
        outcomes += stormy_run(seed)
    assert {
        "ApiVersionsResponse",
        "MetadataResponse",
        "ProduceResponse",
        "FetchResponse",
        "TimeoutError",
        "ConnectionResetError",
        "ConnectionRefusedError",
    } <= set(outcomes)


def stormy_run(seed: int) -> Counter[str]:
    """Run brokers that ask each other while connections break and brokers die."""
    chance, cluster = Random(seed), SimCluster(3, seed)
    accounts = Accounts(cluster)
    peers = {number: _peers(cluster, number) for number in (1, 2, 3)}
    cut: tuple[int, int] | None = None
    for _ in range(300):
        number = chance.choice(sorted(peers))
        peer = chance.choice(peers[number])
        request = chance.choice((API_VERSIONS, METADATA, fetch(100), produce(cluster, 1, b"v")))
        accounts.send(number, peer, request, chance.choice((20, 200, 2000)))
        cluster.run_for(chance.choice((0, 0, 1, 10, 100)))
        one, other = chance.sample((1, 2, 3), k=2)
        match chance.randrange(40):
            case 0 if cut is None:
                cut = (one, other)
                cluster.cut(one, other)
            case 1 | 2 if cut is not None:
                cluster.heal(*cut)
                cut = None
            case 3:
                cluster.drop(one, other)
            case 4 if len(peers) == 3:
                # What the dead process asked for has no outcome: nobody is left to hear it.
                cluster.run_until(lambda: accounts.open == 0)
                cluster.kill(other)
                del peers[other]
            case 5 if len(peers) < 3:
                (dead,) = {1, 2, 3} - set(peers)
                cluster.start(dead)
                peers[dead] = _peers(cluster, dead)
    cluster.run_until(lambda: accounts.open == 0)
    return accounts.outcomes


def _peers(cluster: SimCluster, number: int) -> list[Peer]:
    return [connect(cluster, number, other) for other in (1, 2, 3) if other != number]
