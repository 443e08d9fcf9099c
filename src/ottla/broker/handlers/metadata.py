"""Metadata, versions 0 to 13: brokers, topics and their leaders; auto-creation (KIP-361)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from struct import Struct

from ottla.broker.api import LARGE_BYTES
from ottla.broker.auto_topic_creation import auto_create
from ottla.broker.context import RequestContext
from ottla.broker.metadata_cache import Question
from ottla.broker.node import Node
from ottla.metadata.image import PartitionImage, TopicImage
from ottla.metadata.records import NO_LEADER
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.ids import INTERNAL_TOPICS, ZERO_UUID
from ottla.model.steps import Steps
from ottla.model.topic_names import check_topic_name
from ottla.wire.codec import decoder, step_decoder, step_encoder
from ottla.wire.lazy_list import LazyList
from ottla.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.wire.primitives import DecodeError

FIRST_NULL_IS_ALL = 1
FIRST_THROTTLE_TIME = 3
FIRST_AUTO_CREATION_FLAG = 4
FIRST_LISTENER_NOT_FOUND = 6
FIRST_BY_ID = 12
NOT_ASKED = -(2**31)
# Everybody may do everything while there is no authorizer: one bit per AclOperation.
TOPIC_OPERATIONS = sum(1 << bit for bit in (3, 4, 5, 6, 7, 8, 10, 11))
CLUSTER_OPERATIONS = sum(1 << bit for bit in (5, 7, 8, 9, 10, 11, 12))

_THROTTLE_TIME = Struct(">i")  # the first field of the response


def decoder_of(version: int) -> Callable[..., bytes]:
    """Return a function that takes the body as it is: many have an answer that is known already."""
    return lambda version, buffer, view, start, end: bytes(view[start:end])


def handle(node: Node, body: bytes, context: RequestContext) -> Steps[None] | None:
    """Answer with the cluster as clients of this listener reach it, and the topics asked for."""
    lifecycle = node.lifecycle
    if lifecycle is not None and not lifecycle.is_known:
        # Like Kafka, answer no client before this broker is part of the cluster. An answer without
        # brokers would make clients wait for a long time.
        context.defer()
        lifecycle.when_known(lambda: context.run_in_slices(_respond(node, body, context)))
        return None
    fetchers = node.replica_fetchers
    if fetchers is not None and fetchers.unreachable:
        context.defer()
        fetchers.unreachable.wait(lambda: context.run_in_slices(_respond(node, body, context)))
        return None
    question = (context.version, context.connection.listener, body)
    reply = node.metadata_cache.get(question)
    if reply is not None:
        _send(context, reply)
        return None
    if len(body) > LARGE_BYTES:
        steps = _decode_and_answer(node, question, context)
        return node.pipeline.handle_large(len(body), steps)
    request, _ = decoder(MetadataRequest, context.version)(body, 0, len(body))
    return _answer(node, question, context, request)


def _respond(node: Node, body: bytes, context: RequestContext) -> Steps[None]:
    """Answer a request that has waited until it was clear which brokers are there."""
    question = (context.version, context.connection.listener, body)
    yield from _decode_and_answer(node, question, context)


def _decode_and_answer(node: Node, question: Question, context: RequestContext) -> Steps[None]:
    body = question[2]
    decode = step_decoder(MetadataRequest, context.version)
    request = yield from decode(body, 0, len(body))
    yield from _answer(node, question, context, request)


def _answer(
    node: Node, question: Question, context: RequestContext, request: MetadataRequest
) -> Steps[None]:
    """Create the topics that are missing, then respond."""
    asked = yield from _once(request)
    try:
        errors, missing = yield from _missing(node, asked or (), request, context)
    except ApiError as error:
        yield from context.send_in_slices(_refused(request, error))
        return
    response = _Response(node, question, context, request, asked)
    if not missing:
        yield from response.send(errors)
        return

    def created(refused: Mapping[str, ApiError]) -> None:
        context.run_in_slices(response.send({**errors, **refused}))

    context.defer()
    auto_create(node, missing, created)


def _once(request: MetadataRequest) -> Steps[list[MetadataRequestTopic] | None]:
    """Return the topics asked for, each once; None for all topics."""
    if request.topics is None:
        return None
    once: dict[str | bytes | None, MetadataRequestTopic] = {}
    for topic in request.topics:
        once.setdefault(topic.name if topic.topic_id == ZERO_UUID else topic.topic_id, topic)
        yield
    return list(once.values())


def refuse(body: bytes, error: ApiError, context: RequestContext) -> None:
    """Answer with the error for each topic asked for, and from version 13 for the request."""

    def answer() -> Steps[None]:
        try:
            request = yield from step_decoder(MetadataRequest, context.version)(body, 0, len(body))
        except DecodeError as damage:
            context.disconnect(damage)
            return
        yield from context.send_in_slices(_refused(request, error))

    context.run_in_slices(answer())


def _refused(request: MetadataRequest, error: ApiError) -> MetadataResponse:
    return MetadataResponse(
        error_code=error.code,
        topics=LazyList(
            lambda topic: MetadataResponseTopic(
                error_code=error.code, name=topic.name or "", topic_id=topic.topic_id
            ),
            request.topics or (),
        ),
    )


def _send(context: RequestContext, reply: bytes) -> None:
    """Answer with a body that is encoded without a throttle time."""
    if context.throttle_ms and context.version >= FIRST_THROTTLE_TIME:
        reply = _THROTTLE_TIME.pack(context.throttle_ms) + reply[_THROTTLE_TIME.size :]
    context.send_body(reply)


def _missing(
    node: Node,
    topics: Sequence[MetadataRequestTopic],
    request: MetadataRequest,
    context: RequestContext,
) -> Steps[tuple[dict[str, ApiError], list[str]]]:
    """Return the topics to create, and why others that do not exist cannot be created."""
    errors: dict[str, ApiError] = {}
    missing: dict[str, None] = {}
    allowed = request.allow_auto_topic_creation or context.version < FIRST_AUTO_CREATION_FLAG
    for asked in topics:
        yield
        if asked.topic_id != ZERO_UUID:
            if context.version < FIRST_BY_ID:
                raise ApiError(ErrorCode.INVALID_REQUEST)
            continue
        name = asked.name
        if name is None:
            raise ApiError(ErrorCode.INVALID_REQUEST)
        if name in node.image.topics:
            continue
        try:
            check_topic_name(name)
            if not (allowed and node.config.topics.auto_create_topics_enable):
                raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            missing[name] = None
        except ApiError as error:
            errors[name] = error.with_traceback(None)  # which refers to this frame
    return errors, list(missing)


class _Response:
    """Makes the response to one request, out of the image as it is then."""

    def __init__(
        self,
        node: Node,
        question: Question,
        context: RequestContext,
        request: MetadataRequest,
        asked: list[MetadataRequestTopic] | None,
    ) -> None:
        self._node = node
        self._question = question
        self._context = context
        self._request = request
        self._asked = asked
        self._has_errors = False
        self._reachable: frozenset[int] = frozenset()
        """The brokers that the client can reach."""
        self._offline: dict[tuple[int, ...], list[int]] = {}
        """The replicas that it cannot reach, by all replicas: most partitions share these."""

    def send(self, errors: Mapping[str, ApiError]) -> Steps[None]:
        """Send the response, and keep it unless a topic has an error that may be gone next time.

        `errors` says why topics could not be created.
        """
        node, context = self._node, self._context
        self._errors = errors
        self._image = node.image
        response = self._message()
        reply = yield from step_encoder(MetadataResponse, context.version)(response)
        if not self._has_errors and node.image is self._image:
            node.metadata_cache.put(self._question, reply)
        _send(context, reply)

    def _message(self) -> MetadataResponse:
        node, context, request = self._node, self._context, self._request
        topics: list[MetadataResponseTopic]
        brokers = node.brokers_for(context.connection.listener)
        self._reachable = frozenset(broker[0] for broker in brokers)
        listed = brokers + node.recently_fenced_for(context.connection.listener)
        if self._asked is None or (not self._asked and context.version < FIRST_NULL_IS_ALL):
            topics = LazyList(self._describe, list(self._image.topics.values()))
        else:
            topics = LazyList(self._find, self._asked)
        return MetadataResponse(
            brokers=[
                MetadataResponseBroker(node_id=node_id, host=host, port=port, rack=rack)
                for node_id, host, port, rack in listed
            ],
            cluster_id=node.cluster_id,
            controller_id=node.any_broker([broker[0] for broker in brokers]),
            topics=topics,
            cluster_authorized_operations=(
                CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NOT_ASKED
            ),
        )

    def _find(self, asked: MetadataRequestTopic) -> MetadataResponseTopic:
        image = self._image
        if asked.topic_id != ZERO_UUID:
            topic = image.topics_by_id.get(asked.topic_id)
            if topic is None:
                self._has_errors = True
                return MetadataResponseTopic(
                    error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=asked.topic_id
                )
            return self._describe(topic)
        name = asked.name
        assert name is not None
        topic = image.topics.get(name)
        if topic is not None:
            return self._describe(topic)
        self._has_errors = True
        error = self._errors.get(name)
        return MetadataResponseTopic(
            # Without an error the topic was created, and deleted before this answer.
            error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if error is None else error.code,
            name=name,
            is_internal=name in INTERNAL_TOPICS,
        )

    def _describe(self, topic: TopicImage) -> MetadataResponseTopic:
        with_operations = self._request.include_topic_authorized_operations
        return MetadataResponseTopic(
            name=topic.name,
            topic_id=topic.topic_id,
            is_internal=topic.name in INTERNAL_TOPICS,
            partitions=LazyList(self._partition, topic.partitions),
            topic_authorized_operations=TOPIC_OPERATIONS if with_operations else NOT_ASKED,
        )

    def _partition(self, partition: PartitionImage) -> MetadataResponsePartition:
        leader = partition.leader
        error = ErrorCode.NONE
        replicas, isr = partition.replicas, partition.isr
        offline = self._offline.get(replicas)
        if offline is None:
            offline = [each for each in replicas if each not in self._reachable]
            self._offline[replicas] = offline
        if offline and self._context.version == 0:  # it has no place for them: they are left out
            replicas = tuple(each for each in replicas if each in self._reachable)
            isr = tuple(each for each in isr if each in self._reachable)
            error = ErrorCode.REPLICA_NOT_AVAILABLE
        if leader not in self._reachable:
            error = self._without_leader(leader)
            leader = NO_LEADER
        return MetadataResponsePartition(
            error_code=error,
            partition_index=partition.partition_id,
            leader_id=leader,
            leader_epoch=partition.leader_epoch,
            replica_nodes=replicas,
            isr_nodes=isr,
            offline_replicas=offline,
        )

    def _without_leader(self, leader: int) -> ErrorCode:
        """Return why clients cannot reach a leader: there is none, or it lacks their listener."""
        broker = self._image.brokers.get(leader)
        if broker is None or broker.fenced or self._context.version < FIRST_LISTENER_NOT_FOUND:
            return ErrorCode.LEADER_NOT_AVAILABLE
        if leader == self._node.node_id and self._node.is_cut_off:
            return ErrorCode.LEADER_NOT_AVAILABLE
        return ErrorCode.LISTENER_NOT_FOUND
