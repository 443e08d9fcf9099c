"""When a clean has to leave room for clients."""

from __future__ import annotations

from tests.support.groups import TOPIC, Broker, commit


def serves_clients(broker: Broker) -> bool:
    return broker.node.hosted_logs.cleaning.serves_clients()


def test_a_broker_serves_clients_while_they_send_requests() -> None:
    broker = Broker()
    broker.pass_ms(1000)
    assert not serves_clients(broker)
    for second in range(3):
        for offset in range(50):
            commit(broker.connect(), {(TOPIC, 0): second * 50 + offset})
        broker.pass_ms(1000)
        assert serves_clients(broker)
    broker.pass_ms(1000)
    assert not serves_clients(broker)


def test_a_few_requests_do_not_count() -> None:
    broker = Broker()
    broker.pass_ms(1000)
    assert not serves_clients(broker)
    for offset in range(10):
        commit(broker.connect(), {(TOPIC, 0): offset})
    broker.pass_ms(1000)
    assert not serves_clients(broker)
