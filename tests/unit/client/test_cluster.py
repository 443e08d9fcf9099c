from __future__ import annotations

import socket

import pytest

from ottla.client.address import Address
from ottla.client.errors import ConnectionLost, Refused, TimedOut, Unreachable
from ottla.model.errors import ErrorCode
from ottla.wire.api_table import ApiKey
from ottla.wire.messages.metadata import MetadataResponse, MetadataResponseBroker
from tests.support.scripted_broker import Connect, FakeBroker


@pytest.fixture
def closed_address() -> Address:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return Address(*listener.getsockname()[:2])


def test_the_next_bootstrap_server_is_tried(
    fake_broker: FakeBroker, connect: Connect, closed_address: Address
) -> None:
    fake_broker.add_topic("events", 1)
    client = connect(closed_address, fake_broker.address)
    topics = client.metadata(None, client.deadline("the test"))
    assert [topic.name for topic in topics] == ["events"]


def test_first_contact_fails_at_once_and_names_every_address(
    connect: Connect, closed_address: Address
) -> None:
    client = connect(closed_address, timeout_ms=60_000)
    deadline = client.deadline("the test")
    with pytest.raises(Unreachable, match=rf"no broker answers.*{closed_address}.*ottla up"):
        client.retry(lambda: client.metadata(None, deadline), deadline, harmless_twice=True)
    assert deadline.allows(50)


def test_an_advertised_address_that_does_not_answer(
    fake_broker: FakeBroker, connect: Connect, closed_address: Address
) -> None:
    elsewhere = MetadataResponseBroker(
        node_id=3, host=closed_address.host, port=closed_address.port
    )
    fake_broker.handlers[ApiKey.METADATA] = lambda _: MetadataResponse(brokers=[elsewhere])
    client = connect(fake_broker.address)
    with pytest.raises(Unreachable, match=r"broker 3 advertises .* check its advertised.listeners"):
        client.node(3, client.deadline("the test"))


def test_a_node_nobody_knows(fake_broker: FakeBroker, connect: Connect) -> None:
    client = connect(fake_broker.address)
    with pytest.raises(Refused, match="broker 99"):
        client.node(99, client.deadline("the test"))


def test_one_connection_serves_as_bootstrap_and_as_node(
    fake_broker: FakeBroker, connect: Connect
) -> None:
    client = connect(fake_broker.address)
    deadline = client.deadline("the test")
    first = client.any(deadline)
    client.metadata([], deadline)
    assert client.controller(deadline) is first
    assert client.any(deadline) is first


class Flaky:
    """Raises each of the errors in turn, then returns an answer."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)

    def __call__(self) -> str:
        if self.errors:
            raise self.errors.pop(0)
        return "done"


def test_errors_that_pass_are_waited_out(fake_broker: FakeBroker, connect: Connect) -> None:
    client = connect(fake_broker.address)
    deadline = client.deadline("the test")
    client.metadata([], deadline)
    action = Flaky(
        Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, "x"), ConnectionLost("x"), Unreachable("x")
    )
    assert client.retry(action, deadline, harmless_twice=True) == "done"


@pytest.mark.parametrize(
    "error", [ConnectionLost("it broke"), Refused(ErrorCode.REQUEST_TIMED_OUT, "x")]
)
def test_what_may_have_been_done_is_not_repeated(
    fake_broker: FakeBroker, connect: Connect, error: Exception
) -> None:
    client = connect(fake_broker.address)
    with pytest.raises(type(error)):
        client.retry(Flaky(error), client.deadline("the test"), harmless_twice=False)


def test_a_controller_that_moved_is_always_found_again(
    fake_broker: FakeBroker, connect: Connect
) -> None:
    client = connect(fake_broker.address)
    action = Flaky(Refused(ErrorCode.NOT_CONTROLLER, "x"))
    assert client.retry(action, client.deadline("the test"), harmless_twice=False) == "done"


def test_errors_that_stay_are_not_repeated(fake_broker: FakeBroker, connect: Connect) -> None:
    client = connect(fake_broker.address)
    action = Flaky(Refused(ErrorCode.INVALID_CONFIG, "x"))
    with pytest.raises(Refused, match="INVALID_CONFIG"):
        client.retry(action, client.deadline("the test"), harmless_twice=True)


def test_retries_end_with_the_deadline(fake_broker: FakeBroker, connect: Connect) -> None:
    client = connect(fake_broker.address, timeout_ms=100)
    action = Flaky(*[Refused(ErrorCode.NOT_CONTROLLER, "x") for _ in range(1000)])
    with pytest.raises(Refused, match="NOT_CONTROLLER"):
        client.retry(action, client.deadline("the test"), harmless_twice=True)
    assert len(action.errors) > 900


def test_a_request_without_an_answer_ends_with_the_deadline(
    fake_broker: FakeBroker, connect: Connect
) -> None:
    fake_broker.handlers[ApiKey.METADATA] = lambda _: None
    client = connect(fake_broker.address, timeout_ms=100)
    with pytest.raises(TimedOut, match="did not answer"):
        client.metadata([], client.deadline("the test"))


def test_an_error_code_newer_than_this_program() -> None:
    assert str(Refused(12345, "topic x")) == "topic x: error code 12345"
