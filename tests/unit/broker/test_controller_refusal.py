"""The authorizer of a node is asked about requests on the listener of controllers, too."""

from __future__ import annotations

from importlib import import_module

import pytest

from ottla.broker.context import RequestContext
from ottla.broker.controller_handlers import CONTROLLER_SERVED
from ottla.broker.handlers import SERVED
from ottla.broker.pipeline import HANDLERS
from ottla.model.acl import AclOperation, AclResourceType
from ottla.model.errors import ApiError, ErrorCode
from ottla.wire.api_table import ApiKey
from ottla.wire.apis import request_class
from ottla.wire.codec import decoder, encoder
from ottla.wire.header import decode_response_header, request_header
from ottla.wire.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.wire.messages.default_principal_data import DefaultPrincipalData
from ottla.wire.messages.envelope import EnvelopeRequest, EnvelopeResponse
from tests.support.broker import (
    CLIENT_ID,
    Broker,
    Client,
    Denying,
    Throttling,
    each_version,
    error_codes,
    filled,
)

DENIED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED  # what `denying` answers
VERSIONS = each_version(CONTROLLER_SERVED, without=ApiKey.API_VERSIONS)
CREATE_VERSION = 7


def on_controller_listener(broker: Broker) -> Client:
    """Return a connection whose requests go to the controller's pipeline."""
    broker.node.handle = broker.node.controller_pipeline.handle
    return broker.connect()


@pytest.mark.parametrize(("key", "version"), VERSIONS)
def test_a_controller_refuses_what_the_authorizer_denies(
    denying: Broker, key: int, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = on_controller_listener(denying)
    handled: list[object] = []
    is_forwarded = key in SERVED and SERVED[key].is_forwarded
    package = HANDLERS if is_forwarded else "ottla.broker.controller_handlers"
    api = denying.node.controller_pipeline.apis.get(key)
    owner = import_module(f"{package}.{ApiKey(key).name.lower()}") if api is None else api
    monkeypatch.setattr(owner, "handle", lambda *args: handled.append(args))
    response = client.ask(filled(request_class(key), version), version)
    assert set(error_codes(response, version)) == {DENIED}
    assert not handled


def create(name: str) -> CreateTopicsRequest:
    wanted = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    return CreateTopicsRequest(topics=[wanted])


def test_an_authorizer_that_is_set_later_counts_for_both_listeners() -> None:
    broker = Broker()
    client = on_controller_listener(broker)
    request = create("a")
    broker.node.pipeline.authorizer = Denying(ApiError(DENIED))
    assert [topic.error_code for topic in client.ask(request).topics] == [DENIED]
    broker.node.pipeline.authorizer = None
    assert [topic.error_code for topic in client.ask(request).topics] == [ErrorCode.NONE]


class OnlyFor:
    """Allows everybody to use the Envelope, and one principal to use everything."""

    def __init__(self, principal: str) -> None:
        self._principal = principal

    def check(self, context: RequestContext) -> None:
        if context.api.key == ApiKey.ENVELOPE:
            return
        if context.connection.principal != self._principal:
            raise ApiError(DENIED)

    def allows(
        self,
        context: RequestContext,
        operation: AclOperation,
        resource_type: AclResourceType,
        name: str,
    ) -> bool:
        return True


def enveloped(name: str, principal: str) -> EnvelopeRequest:
    """Return a CreateTopics request as a broker passes it on for a client."""
    header = request_header(ApiKey.CREATE_TOPICS, CREATE_VERSION, 5, CLIENT_ID)
    body = encoder(CreateTopicsRequest, CREATE_VERSION)(create(name))
    who = DefaultPrincipalData(type_="User", name=principal)
    return EnvelopeRequest(
        request_data=bytes(header) + body,
        request_principal=b"\0\0" + encoder(DefaultPrincipalData, 0)(who),
        client_host_address=b"\x7f\0\0\1",
    )


def inner(response: EnvelopeResponse) -> CreateTopicsResponse:
    """Return the response in an Envelope."""
    assert response.error_code == ErrorCode.NONE
    data = bytes(response.response_data or b"")
    key = ApiKey.CREATE_TOPICS
    _, start = decode_response_header(key, CREATE_VERSION, data, 0, len(data))
    return decoder(CreateTopicsResponse, CREATE_VERSION)(data, start, len(data))[0]


def test_the_client_in_an_envelope_is_the_principal() -> None:
    broker = Broker()
    broker.node.pipeline.authorizer = OnlyFor("User:admin")
    client = on_controller_listener(broker)
    refused = inner(client.ask(enveloped("a", "somebody"), 0))
    assert [topic.error_code for topic in refused.topics] == [DENIED]
    allowed = inner(client.ask(enveloped("b", "admin"), 0))
    assert [topic.error_code for topic in allowed.topics] == [ErrorCode.NONE]
    assert set(broker.node.image.topics) == {"b"}


def test_a_request_in_an_envelope_passes_through_all_stages() -> None:
    broker = Broker()
    pipeline = broker.node.controller_pipeline
    pipeline.quotas = quotas = Throttling(0)
    client = on_controller_listener(broker)
    assert inner(client.ask(enveloped("a", "admin"), 0)).topics[0].error_code == ErrorCode.NONE
    assert [name for name, _ in quotas.seen] == ["Envelope", "CreateTopics"]
    for key in (ApiKey.ENVELOPE, ApiKey.CREATE_TOPICS):
        metrics = pipeline.apis[key].metrics
        assert (metrics.requests, metrics.total.count, metrics.local.count) == (1, 1, 1)
        assert metrics.request_bytes > 30
        assert metrics.response_bytes > 30


def test_the_client_in_an_envelope_is_told_its_throttle_time() -> None:
    broker = Broker()
    client = on_controller_listener(broker)
    broker.node.controller_pipeline.quotas = OnlyInside(250)
    assert inner(client.ask(enveloped("a", "admin"), 0)).throttle_time == 250
    assert client.connection.takes_requests
    broker.pass_time(250)
    assert inner(client.ask(enveloped("b", "admin"), 0)).throttle_time == 250


class OnlyInside:
    """Quotas that hold nobody back but clients whose requests are passed on."""

    def __init__(self, time_ms: int) -> None:
        self._time_ms = time_ms

    def throttle_ms(self, context: RequestContext) -> int:
        return 0 if context.api.key == ApiKey.ENVELOPE else self._time_ms
