"""Many connections, limits on them, idle ones, and readers that do not read."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest

from tests.harness.batches import batch_of, records_of
from tests.harness.deadline import eventually
from tests.harness.process import BrokerProcess
from tests.harness.raw import ConnectionClosed, RawConnection
from tests.harness.topics import create_topic, fetch, fetch_fields, produce

MIB = 1 << 20


@contextmanager
def connections(broker: BrokerProcess, count: int) -> Iterator[list[RawConnection]]:
    with ExitStack() as stack:
        yield [stack.enter_context(RawConnection(broker.bootstrap_servers)) for _ in range(count)]


def answers(connection: RawConnection) -> bool:
    try:
        return bool(connection.request("api_versions", 0).error_code == 0)
    except (ConnectionClosed, ConnectionError):
        return False


def test_hundreds_of_connections_are_served(broker: BrokerProcess) -> None:
    create_topic(broker.bootstrap_servers, "t", 4)
    before = broker.rss_bytes()
    with connections(broker, 400) as many:
        for number, connection in enumerate(many):
            connection.send(
                "produce",
                9,
                acks=1,
                timeout=10_000,
                topic_data=[
                    {
                        "name": "t",
                        "partition_data": [{"index": number % 4, "records": batch_of([b"v"])}],
                    }
                ],
            )
        for connection in many:
            answer = connection.receive("produce", 9, 1)
            assert answer.responses[0].partition_responses[0].error_code == 0
        assert broker.rss_bytes() - before < 40 * MIB
        assert all(answers(connection) for connection in many)
    eventually(lambda: broker.open_files() < 100, "closed connections are given back")
    with RawConnection(broker.bootstrap_servers) as raw:
        counts = [len(records_of(fetch(raw, "t", 0, partition=each).records)) for each in range(4)]
    assert counts == [100] * 4


def test_the_total_is_limited(start_broker: Callable[..., BrokerProcess]) -> None:
    broker = start_broker({"max.connections": "5"})
    with connections(broker, 5) as first:
        assert all(answers(connection) for connection in first)
        with RawConnection(broker.bootstrap_servers) as one_too_many:
            assert not answers(one_too_many)
        assert all(answers(connection) for connection in first)
    eventually(lambda: fresh_connection_answers(broker), "places are given back")


def test_an_address_is_limited(start_broker: Callable[..., BrokerProcess]) -> None:
    broker = start_broker({"max.connections.per.ip": "3"})
    with connections(broker, 3) as first:
        assert all(answers(connection) for connection in first)
        with RawConnection(broker.bootstrap_servers) as one_too_many:
            assert not answers(one_too_many)
        first[0].close()
        eventually(lambda: fresh_connection_answers(broker), "one place is free")


def test_an_address_can_have_its_own_limit(start_broker: Callable[..., BrokerProcess]) -> None:
    broker = start_broker(
        {"max.connections.per.ip": "1", "max.connections.per.ip.overrides": "127.0.0.1:4"}
    )
    with connections(broker, 4) as first:
        assert all(answers(connection) for connection in first)
        assert not fresh_connection_answers(broker)


def fresh_connection_answers(broker: BrokerProcess) -> bool:
    with RawConnection(broker.bootstrap_servers) as connection:
        return answers(connection)


def test_idle_connections_are_closed_and_busy_ones_kept(
    start_broker: Callable[..., BrokerProcess],
) -> None:
    broker = start_broker({"connections.max.idle.ms": "600"})
    with connections(broker, 2) as (idle, busy):
        assert answers(idle)
        idle.socket.setblocking(False)
        start = time.monotonic()

        def idle_is_closed() -> bool:
            assert answers(busy), "a connection in use is not idle"
            try:
                return idle.socket.recv(1) == b""
            except BlockingIOError:
                return False

        eventually(idle_is_closed, "the idle connection is closed", 5)
        assert time.monotonic() - start > 0.4
        assert answers(busy)


def test_a_waiting_fetch_is_not_idle(start_broker: Callable[..., BrokerProcess]) -> None:
    # Long enough that a busy machine does not let the connection idle before the fetch.
    broker = start_broker({"connections.max.idle.ms": "1500"})
    create_topic(broker.bootstrap_servers, "t")
    with RawConnection(broker.bootstrap_servers) as raw:
        answer = fetch(raw, "t", 0, max_wait_ms=4_000)
    assert answer.error_code == 0


@pytest.mark.slow
def test_readers_that_do_not_read_cost_little_and_slow_nobody(broker: BrokerProcess) -> None:
    create_topic(broker.bootstrap_servers, "t")
    with RawConnection(broker.bootstrap_servers) as raw:
        for _ in range(40):
            assert produce(raw, "t", batch_of([b"x" * 500_000])).error_code == 0
    before = broker.rss_bytes()
    asked = fetch_fields({"t": {0: 0}}, partition_max_bytes=10 * MIB)
    with ExitStack() as stack:
        for _ in range(30):
            slow = stack.enter_context(
                RawConnection(broker.bootstrap_servers, receive_buffer=4_096)
            )
            slow.socket.settimeout(0.2)
            try:
                for _ in range(30):
                    slow.send("fetch", 12, **asked)
            except TimeoutError:
                pass  # the broker has stopped reading from us, which is fine
        with RawConnection(broker.bootstrap_servers) as quick:
            slowest = 0.0
            for _ in range(100):
                start = time.monotonic()
                assert produce(quick, "t", batch_of([b"v"])).error_code == 0
                slowest = max(slowest, time.monotonic() - start)
        assert slowest < 0.5, "30 readers that do not read hold up a writer"
        growth = broker.rss_bytes() - before
        assert growth < 100 * MIB, f"{growth // MIB} MiB for 30 readers that do not read"
    eventually(lambda: broker.open_files() < 60, "the slow readers are gone")


@pytest.mark.slow
def test_writers_that_send_half_a_request_cost_little(broker: BrokerProcess) -> None:
    create_topic(broker.bootstrap_servers, "t")
    before = broker.rss_bytes()
    with connections(broker, 100) as many:
        for connection in many:
            connection.send_bytes(struct.pack(">i", 90 * MIB) + b"\x00" * 100)
        with RawConnection(broker.bootstrap_servers) as quick:
            for _ in range(50):
                assert produce(quick, "t", batch_of([b"v"])).error_code == 0
        growth = broker.rss_bytes() - before
        assert growth < 150 * MIB, "room is made for what arrived, not for what was announced"


def test_a_request_over_the_limit_closes_the_connection(
    start_broker: Callable[..., BrokerProcess],
) -> None:
    broker = start_broker({"socket.request.max.bytes": "10000"})
    with connections(broker, 2) as (large, other):
        large.send_bytes(struct.pack(">i", 10_001))
        assert large.is_closed_by_peer()
        assert answers(other)


def test_connections_cut_off_in_the_middle(broker: BrokerProcess) -> None:
    create_topic(broker.bootstrap_servers, "t")
    for cut in (1, 3, 4, 10, 50):
        with RawConnection(broker.bootstrap_servers) as raw:
            raw.send_bytes((struct.pack(">i", 100) + b"\x00" * 96)[:cut])
            raw.socket.setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
            )  # close with a reset
    assert fresh_connection_answers(broker)
    assert broker.stop() == 0
    assert "Traceback" not in broker.errors


def test_readers_that_leave_in_the_middle_of_an_answer(broker: BrokerProcess) -> None:
    create_topic(broker.bootstrap_servers, "t")
    with RawConnection(broker.bootstrap_servers) as raw:
        for _ in range(10):
            produce(raw, "t", batch_of([b"x" * 500_000]))
    asked = fetch_fields({"t": {0: 0}}, partition_max_bytes=10 * MIB)
    for _ in range(30):
        with RawConnection(broker.bootstrap_servers, receive_buffer=4_096) as leaver:
            leaver.send("fetch", 12, **asked)
            leaver.receive_exactly(100)
            reset = struct.pack("ii", 1, 0)
            leaver.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
    eventually(lambda: broker.open_files() < 60, "their connections are given back")
    with RawConnection(broker.bootstrap_servers) as raw:
        assert len(records_of(fetch(raw, "t", 0, partition_max_bytes=10 * MIB).records)) == 10
    assert broker.stop() == 0
    assert "Traceback" not in broker.errors


def test_ipv6_and_names(start_broker: Callable[..., BrokerProcess]) -> None:
    broker = start_broker(
        {
            "listeners": "ONE://127.0.0.1:0,TWO://[::1]:0,NAMED://localhost:0",
            "listener.security.protocol.map": "ONE:PLAINTEXT,TWO:PLAINTEXT,NAMED:PLAINTEXT",
            "inter.broker.listener.name": "ONE",
        }
    )
    addresses = broker.bootstrap_servers.split(",")
    assert len(addresses) == 3
    for address in addresses:
        with RawConnection(address) as raw:
            (me,) = raw.request("metadata", 12, topics=[]).brokers
        host = address.rpartition(":")[0].strip("[]")
        assert (me.host, str(me.port)) == (host, address.rpartition(":")[2])
