"""Requests that change metadata wait for the disk, and see what others have under way."""

from __future__ import annotations

from collections.abc import Callable
from struct import pack

import pytest

from ottla.broker.connection import Connection
from ottla.broker.handlers import SERVED
from ottla.broker.node import Node
from ottla.config.broker import BrokerConfig
from ottla.memory_files import MemoryFiles
from ottla.model.errors import ErrorCode
from ottla.model.ids import ZERO_UUID
from ottla.sim.background import DeferredBackground
from ottla.sim.clock import VirtualClock
from ottla.testing.fakes import fake_ports
from ottla.testing.faulty_files import FaultyFiles
from ottla.wire.apis import response_class
from ottla.wire.codec import decoder, encoder
from ottla.wire.header import response_header
from ottla.wire.message import Message
from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.init_producer_id import InitProducerIdRequest
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic


class Client:
    def __init__(self, node: Node) -> None:
        self.node = node
        self.connection = Connection("127.0.0.1", "PLAINTEXT")

    def send(self, request: Message) -> Callable[[], Message | None]:
        """Have a request handled; what is returned gives the answer, None while there is none."""
        version = SERVED[request.API_KEY].newest
        frame = bytearray(pack(">hhih", request.API_KEY, version, 7, 0) + b"\0")
        frame += encoder(type(request), version)(request)
        self.node.handle(self.connection, frame, memoryview(frame), 0, len(frame))

        def answer() -> Message | None:
            if not self.connection.out:
                return None
            (reply,) = self.connection.out
            assert isinstance(reply, bytes)
            start = 4 + len(response_header(request.API_KEY, version, 7))
            return decoder(response_class(request.API_KEY), version)(reply, start, len(reply))[0]

        return answer


class Broker:
    def __init__(self) -> None:
        self.files = FaultyFiles(MemoryFiles())
        self.background = DeferredBackground()
        config = BrokerConfig({"log.dirs": "/data", "offsets.topic.num.partitions": "2"})
        endpoints = [each._replace(host="h") for each in config.network.advertised_listeners]
        reports: list[str] = []
        ports = fake_ports(self.files, VirtualClock(), None, self.background, reports.append)
        self.node = Node(config, endpoints, ports)
        self.node.start()
        self.background.finish()

    @property
    def metadata_syncs(self) -> int:
        log = "__cluster_metadata-0/00000000000000000000.log"
        return sum(path.endswith(log) for path in self.files.synced)

    def send(self, request: Message) -> Callable[[], Message | None]:
        return Client(self.node).send(request)

    def finish(self) -> None:
        self.node.settle()
        while self.background:
            self.background.finish()
            self.node.settle()


@pytest.fixture
def broker() -> Broker:
    return Broker()


def creation(name: str) -> CreateTopicsRequest:
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    return CreateTopicsRequest(topics=[topic])


def metadata(*names: str) -> MetadataRequest:
    return MetadataRequest(
        topics=[MetadataRequestTopic(name=name) for name in names], allow_auto_topic_creation=True
    )


def code(answer: Callable[[], Message | None]) -> int:
    reply = answer()
    assert reply is not None
    (result,) = getattr(reply, "topics", None) or getattr(reply, "responses", [reply])
    return int(result.error_code)


def test_many_creations_share_one_sync(broker: Broker) -> None:
    before = broker.metadata_syncs
    answers = [broker.send(creation(f"t{number}")) for number in range(20)]
    broker.node.settle()
    assert [answer() for answer in answers] == [None] * 20
    assert not broker.node.image.topics
    broker.finish()
    assert [code(answer) for answer in answers] == [0] * 20
    assert len(broker.node.image.topics) == 20
    assert broker.metadata_syncs == before + 1


def test_the_second_of_two_equal_requests_hears_of_the_first(broker: Broker) -> None:
    first, second = broker.send(creation("a")), broker.send(creation("a"))
    broker.node.settle()
    third = broker.send(creation("a"))
    assert (first(), second(), third()) == (None, None, None)
    broker.finish()
    assert [code(answer) for answer in (first, second, third)] == [
        ErrorCode.NONE,
        ErrorCode.TOPIC_ALREADY_EXISTS,
        ErrorCode.TOPIC_ALREADY_EXISTS,
    ]


def test_a_topic_can_be_deleted_while_it_is_being_created(broker: Broker) -> None:
    created = broker.send(creation("a"))
    state = DeleteTopicState(name="a", topic_id=ZERO_UUID)
    deleted = broker.send(DeleteTopicsRequest(topics=[state]))
    broker.finish()
    assert (code(created), code(deleted)) == (0, 0)
    assert not broker.node.image.topics
    assert len(broker.node.topics) == 0


def test_a_refusal_that_relied_on_a_failed_change_is_not_told(broker: Broker) -> None:
    first, second = broker.send(creation("a")), broker.send(creation("a"))
    asked = broker.send(metadata("a"))
    broker.node.settle()
    broker.files.fail("sync")
    broker.finish()
    for answer in (first, second, asked):
        assert code(answer) == ErrorCode.KAFKA_STORAGE_ERROR
    broker.files.heal()
    again = broker.send(creation("a"))
    broker.finish()
    assert code(again) == 0


def test_metadata_waits_for_the_topics_it_creates(broker: Broker) -> None:
    before = broker.metadata_syncs
    first, second = broker.send(metadata("a", "b")), broker.send(metadata("a"))
    broker.node.settle()
    assert (first(), second()) == (None, None)
    broker.finish()
    reply = first()
    assert reply is not None
    assert [(t.name, t.error_code, len(t.partitions)) for t in reply.topics] == [  # type: ignore[attr-defined]
        ("a", 0, 1),
        ("b", 0, 1),
    ]
    assert code(second) == 0
    assert broker.metadata_syncs == before + 1
    at_once = broker.send(metadata("a"))
    assert code(at_once) == 0


def test_the_first_group_waits_for_its_topic(broker: Broker) -> None:
    answers = [
        broker.send(FindCoordinatorRequest(coordinator_keys=[key])) for key in ("g", "other")
    ]
    broker.node.settle()
    assert [answer() for answer in answers] == [None, None]
    broker.finish()
    for answer in answers:
        reply = answer()
        assert reply is not None
        assert [each.node_id for each in reply.coordinators] == [1]  # type: ignore[attr-defined]
    assert len(broker.node.image.topics["__consumer_offsets"].partitions) == 2


def test_producer_ids_come_at_once_while_there_are_some(broker: Broker) -> None:
    answers = [broker.send(InitProducerIdRequest(transactional_id=None)) for _ in range(3)]
    assert [answer() for answer in answers] == [None] * 3
    broker.finish()
    assert [answer().producer_id for answer in answers] == [0, 1, 2]  # type: ignore[union-attr]
    fourth = broker.send(InitProducerIdRequest(transactional_id=None))()
    assert fourth is not None
    assert (fourth.producer_id, broker.node.image.next_producer_id) == (3, 1000)  # type: ignore[attr-defined]


def test_more_producers_than_a_block_has_ids_wait_for_the_next(broker: Broker) -> None:
    answers = [broker.send(InitProducerIdRequest(transactional_id=None)) for _ in range(1001)]
    broker.finish()
    found = [answer().producer_id for answer in answers]  # type: ignore[union-attr]
    assert found == list(range(1001))


def test_a_producer_id_that_cannot_be_stored_is_refused(broker: Broker) -> None:
    answer = broker.send(InitProducerIdRequest(transactional_id=None))
    broker.node.settle()
    broker.files.fail("sync")
    broker.finish()
    reply = answer()
    assert reply is not None
    assert (reply.error_code, reply.producer_id) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)  # type: ignore[attr-defined]
    broker.files.heal()
    again = broker.send(InitProducerIdRequest(transactional_id=None))
    broker.finish()
    assert again().producer_id == 0  # type: ignore[union-attr]


def test_what_a_client_began_happens_though_it_is_gone(broker: Broker) -> None:
    client = Client(broker.node)
    answer = client.send(creation("a"))
    broker.node.settle()
    assert client.connection.parked is not None
    broker.node.close_connection(client.connection)
    broker.finish()
    assert answer() is None
    assert "a" in broker.node.image.topics
