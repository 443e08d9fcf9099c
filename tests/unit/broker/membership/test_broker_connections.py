"""Brokers whose last connection to the controller is closed."""

from __future__ import annotations

from ottla.broker.connection import Connection
from ottla.broker.membership.broker_connections import BrokerConnections


def connection() -> Connection:
    return Connection("127.0.0.1", "CONTROLLER")


def test_a_broker_is_lost_with_its_last_connection() -> None:
    lost: list[int] = []
    connections = BrokerConnections(lost.append)
    first, second, other = connection(), connection(), connection()
    connections.add(first, 1)
    connections.add(second, 1)
    connections.add(other, 2)
    connections.closed(first)
    assert lost == []
    connections.closed(second)
    assert lost == [1]
    connections.closed(connection())
    assert lost == [1]


def test_a_connection_may_be_closed_before_its_request_is_decided() -> None:
    """A heartbeat waits until the new controller has committed its first record."""
    lost: list[int] = []
    connections = BrokerConnections(lost.append)
    gone = connection()
    gone.abandon()
    connections.closed(gone)
    connections.add(gone, 3)
    assert lost == [3]
    connections.closed(gone)
    assert lost == [3], "it is not kept"
