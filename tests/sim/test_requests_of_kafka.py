"""What brokers and controllers of Apache Kafka ask Ottla's controllers for, in Kafka's words."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.controller.brokers import LEVELS_OF_A_NEW_CLUSTER, features_in_a_cluster
from ottla.model.errors import ErrorCode
from ottla.sim.cluster import CONTROLLER, PORT, SimCluster, host_of
from ottla.sim.network.exchange import make_exchange
from ottla.wire.apis import ApiKey
from ottla.wire.codec import decoder, encoder
from ottla.wire.header import decode_response_header, request_header
from ottla.wire.message import Message
from ottla.wire.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from ottla.wire.messages.api_versions import ApiVersionsRequest
from ottla.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from ottla.wire.messages.broker_registration import (
    BrokerRegistrationRequest,
    Feature,
    Listener,
)
from ottla.wire.messages.controller_registration import ControllerRegistrationRequest
from ottla.wire.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.wire.messages.default_principal_data import DefaultPrincipalData
from ottla.wire.messages.envelope import EnvelopeRequest
from ottla.wire.messages.metadata import MetadataRequest
from tests.sim.test_hostile_requests import Sender
from tests.sim.test_quorum_of_several import NODES, active
from tests.sim.test_replication import started

CORRELATION_ID = 1
GUEST = 9


def ask_controller(cluster: SimCluster, number: int, request: Message, version: int) -> Any:
    return cluster.ask(number, request, version, CONTROLLER)


def enveloped(request: Message, version: int) -> EnvelopeRequest:
    """Return a request as a broker of Kafka passes it on."""
    principal = DefaultPrincipalData(type_="User", name="ANONYMOUS")
    return EnvelopeRequest(
        request_data=make_exchange("client", CORRELATION_ID, request, version).frame[4:],
        request_principal=b"\x00\x00" + encoder(DefaultPrincipalData, 0)(principal),
        client_host_address=bytes([127, 0, 0, 1]),
    )


def create(name: str) -> CreateTopicsRequest:
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=3)
    return CreateTopicsRequest(topics=[topic], timeout=10_000)


def leader_of(cluster: SimCluster) -> int:
    leader = active(cluster)
    assert leader is not None
    return leader


# -- versions and features ------------------------------------------------------------------------


def test_a_controller_tells_its_own_apis_and_the_features() -> None:
    cluster = started(0)
    answer = ask_controller(
        cluster, 1, ApiVersionsRequest(client_software_name="k", client_software_version="4"), 4
    )
    keys = {each.api_key for each in answer.api_keys}
    assert {ApiKey.ENVELOPE, ApiKey.BROKER_REGISTRATION, ApiKey.VOTE, ApiKey.FETCH} <= keys
    assert ApiKey.PRODUCE not in keys
    supported = {f.name: (f.min_version, f.max_version) for f in answer.supported_features}
    assert supported["kraft.version"] == (0, 1)
    assert supported["metadata.version"] == (7, 30)  # Kafka 4.3-IV0
    finalized = {f.name: f.max_version_level for f in answer.finalized_features}
    assert finalized == LEVELS_OF_A_NEW_CLUSTER


def test_a_broker_of_a_cluster_tells_the_levels_of_kraft_version() -> None:
    request = ApiVersionsRequest(client_software_name="k", client_software_version="4")
    answer: Any = started(0).ask(1, request, 4)
    supported = {f.name: (f.min_version, f.max_version) for f in answer.supported_features}
    assert supported["kraft.version"] == (0, 1)


def test_a_broker_names_every_feature_of_kafka() -> None:
    names = {feature.name: feature.max_level for feature in features_in_a_cluster()}
    assert names == {
        "metadata.version": 30,
        "group.version": 1,
        "transaction.version": 2,
        "share.version": 1,
        "streams.version": 1,
        "eligible.leader.replicas.version": 1,
        "kraft.version": 1,
    }


# -- requests that a broker passes on -------------------------------------------------------------


def test_a_request_in_an_envelope_is_answered_in_an_envelope() -> None:
    cluster = started(1)
    answer = ask_controller(cluster, leader_of(cluster), enveloped(create("t"), 7), 0)
    assert answer.error_code == 0
    data = bytes(answer.response_data)
    correlation_id, position = decode_response_header(ApiKey.CREATE_TOPICS, 7, data, 0, len(data))
    assert correlation_id == CORRELATION_ID
    created, end = decoder(CreateTopicsResponse, 7)(data, position, len(data))
    assert end == len(data)
    assert [(each.name, each.error_code) for each in created.topics] == [("t", 0)]
    cluster.run_until(lambda: all("t" in cluster.node(n).image.topics for n in NODES))


def test_a_standby_controller_sends_the_envelope_back() -> None:
    cluster = started(2)
    standby = next(n for n in NODES if n != leader_of(cluster))
    answer = ask_controller(cluster, standby, enveloped(create("t"), 7), 0)
    assert (answer.error_code, answer.response_data) == (ErrorCode.NOT_CONTROLLER, None)


def test_only_what_the_controller_decides_may_be_in_an_envelope() -> None:
    cluster = started(3)
    answer = ask_controller(cluster, leader_of(cluster), enveloped(MetadataRequest(), 12), 0)
    assert answer.error_code == ErrorCode.INVALID_REQUEST


# -- a broker's life ------------------------------------------------------------------------------


def registration(cluster: SimCluster) -> BrokerRegistrationRequest:
    """Return that of a broker whose address takes connections: the controller lets it live."""
    return BrokerRegistrationRequest(
        broker_id=GUEST,
        cluster_id=cluster.node(1).cluster_id,
        incarnation_id=b"k" * 16,
        listeners=[Listener(name="PLAINTEXT", host=host_of(1), port=PORT, security_protocol=0)],
        features=[Feature(name=n, min_supported_version=a, max_supported_version=b)
                  for n, a, b in features_in_a_cluster()],
        log_dirs=[b"d" * 16],
    )  # fmt: skip


def register(cluster: SimCluster) -> int:
    answer = ask_controller(cluster, leader_of(cluster), registration(cluster), 4)
    assert answer.error_code == 0
    return int(answer.broker_epoch)


def beat(cluster: SimCluster, epoch: int, offset: int, *, stops: bool = False) -> Any:
    request = BrokerHeartbeatRequest(
        broker_id=GUEST,
        broker_epoch=epoch,
        current_metadata_offset=offset,
        want_shut_down=stops,
    )
    return ask_controller(cluster, leader_of(cluster), request, 1)


def test_each_broker_gets_other_producer_ids_while_another_decision_is_made() -> None:
    cluster = started(6)
    node = cluster.node(leader_of(cluster))
    node.sliced_work.slice_ms = 0
    topics = [
        CreatableTopic(name=f"t{number}", num_partitions=20, replication_factor=1)
        for number in range(20)
    ]
    senders = [Sender(cluster, node.node_id, CONTROLLER) for _ in range(3)]
    senders[0].send(frame_of(CreateTopicsRequest(topics=topics), 7))
    for number, sender in zip(NODES, senders[1:], strict=False):
        epoch = node.image.brokers[number].broker_epoch
        asked = AllocateProducerIdsRequest(broker_id=number, broker_epoch=epoch)
        sender.send(frame_of(asked, 0))
    cluster.run_until(lambda: all(each.is_done for each in senders), 30_000)
    blocks = [
        decoder(AllocateProducerIdsResponse, 0)(bytes(each.received), 9, len(each.received))[0]
        for each in senders[1:]
    ]
    assert [(each.error_code, each.producer_id_len) for each in blocks] == [(0, 1000)] * 2
    assert len({each.producer_id_start for each in blocks}) == 2


def frame_of(request: Message, version: int) -> bytes:
    header = request_header(request.API_KEY, version, CORRELATION_ID, "c")
    return header + encoder(type(request), version)(request)


def test_brokers_and_controllers_that_cannot_be_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = started(6)
    leader = leader_of(cluster)

    def refused(request: Message, version: int) -> int:
        return int(ask_controller(cluster, leader, request, version).error_code)

    request = registration(cluster)
    request.broker_id = -1
    assert refused(request, 4) == ErrorCode.INVALID_REQUEST
    assert refused(ControllerRegistrationRequest(controller_id=-1), 0) == ErrorCode.INVALID_REQUEST
    request = registration(cluster)
    request.features = [each for each in request.features if each.name != "metadata.version"]
    assert refused(request, 4) == ErrorCode.UNSUPPORTED_VERSION
    monkeypatch.setattr("ottla.controller.brokers.MOST_NODES", len(NODES))
    assert refused(registration(cluster), 4) == ErrorCode.POLICY_VIOLATION
    another = ControllerRegistrationRequest(controller_id=GUEST)
    assert refused(another, 0) == ErrorCode.POLICY_VIOLATION
    assert set(cluster.node(leader).image.brokers) == set(NODES)
    assert set(cluster.node(leader).image.controllers) <= set(NODES)


def test_a_broker_is_unfenced_with_the_offset_of_its_registration() -> None:
    """A heartbeat has the offset of the last record, not the end of the log."""
    cluster = started(4)
    epoch = register(cluster)
    assert beat(cluster, epoch, epoch - 1).is_fenced
    assert not beat(cluster, epoch, epoch).is_fenced


def test_a_broker_stops_when_one_of_kafka_has_the_last_record() -> None:
    """Nothing is written after the hand-over: the offset of the last record must be enough."""
    cluster = started(5)
    epoch = register(cluster)
    beat(cluster, epoch, epoch)
    leader = leader_of(cluster)
    stopped: list[bool] = []
    cluster.node(next(n for n in NODES if n != leader)).leave(lambda: stopped.append(True))

    def has_stopped() -> bool:
        beat(cluster, epoch, cluster.node(leader).image.end_offset - 1)
        return bool(stopped)

    cluster.run_until(has_stopped, 5_000)
