"""Metadata, versions 0 to 13: brokers, topics and their leaders; auto-creation (KIP-361)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from struct import Struct

from ottla.broker.auto_topic_creation import auto_create
from ottla.broker.context import RequestContext
from ottla.broker.metadata_cache import Question
from ottla.broker.node import Node
from ottla.metadata.image import TopicImage
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.ids import INTERNAL_TOPICS, ZERO_UUID
from ottla.model.topic_names import check_topic_name
from ottla.wire.codec import decoder, encoder
from ottla.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

FIRST_NULL_IS_ALL = 1
FIRST_THROTTLE_TIME = 3
FIRST_AUTO_CREATION_FLAG = 4
FIRST_BY_ID = 12
NOT_ASKED = -(2**31)
# Everybody may do everything while there is no authorizer: one bit per AclOperation.
TOPIC_OPERATIONS = sum(1 << bit for bit in (3, 4, 5, 6, 7, 8, 10, 11))
CLUSTER_OPERATIONS = sum(1 << bit for bit in (5, 7, 8, 9, 10, 11, 12))

_THROTTLE_TIME = Struct(">i")  # the first field of the response


def decoder_of(version: int) -> Callable[..., bytes]:
    """Return a function that takes the body as it is: many have an answer that is known already."""
    return lambda version, buffer, view, start, end: bytes(view[start:end])


def handle(node: Node, body: bytes, context: RequestContext) -> None:
    """Answer with the cluster as clients of this listener reach it, and the topics asked for."""
    question = (context.version, context.connection.listener, body)
    reply = node.metadata_cache.get(question)
    if reply is not None:
        _send(context, reply)
        return
    request, _ = decoder(MetadataRequest, context.version)(body, 0, len(body))
    errors, missing = _missing(node, request, context)

    def created(refused: Mapping[str, ApiError]) -> None:
        _answer(node, question, context, _respond(node, request, context, {**errors, **refused}))

    if missing:
        context.defer()
        auto_create(node, missing, created)
    else:
        created({})


def refuse(body: bytes, error: ApiError, context: RequestContext) -> MetadataResponse:
    """Return the error for each topic asked for, and from version 13 for the request."""
    request, _ = decoder(MetadataRequest, context.version)(body, 0, len(body))
    return MetadataResponse(
        error_code=error.code,
        topics=[
            MetadataResponseTopic(
                error_code=error.code, name=topic.name or "", topic_id=topic.topic_id
            )
            for topic in request.topics or ()
        ],
    )


def _answer(
    node: Node, question: Question, context: RequestContext, response: MetadataResponse
) -> None:
    """Send the response and keep it, unless a topic has an error that may be gone next time."""
    reply = encoder(MetadataResponse, context.version)(response)
    if not response.error_code and not any(topic.error_code for topic in response.topics):
        node.metadata_cache.put(question, reply)
    _send(context, reply)


def _send(context: RequestContext, reply: bytes) -> None:
    """Answer with a body that is encoded without a throttle time."""
    if context.throttle_ms and context.version >= FIRST_THROTTLE_TIME:
        reply = _THROTTLE_TIME.pack(context.throttle_ms) + reply[_THROTTLE_TIME.size :]
    context.send_body(reply)


def _missing(
    node: Node, request: MetadataRequest, context: RequestContext
) -> tuple[dict[str, ApiError], list[str]]:
    """Return the topics to create, and why others that do not exist cannot be created."""
    errors: dict[str, ApiError] = {}
    missing: dict[str, None] = {}
    allowed = request.allow_auto_topic_creation or context.version < FIRST_AUTO_CREATION_FLAG
    for asked in request.topics or ():
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
            errors[name] = error
    return errors, list(missing)


def _respond(
    node: Node, request: MetadataRequest, context: RequestContext, errors: Mapping[str, ApiError]
) -> MetadataResponse:
    asked = request.topics
    if asked is None or (not asked and context.version < FIRST_NULL_IS_ALL):
        topics = [_describe(topic, request) for topic in node.image.topics.values()]
    else:
        topics = [_find(node, item, request, errors) for item in asked]
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=node_id, host=host, port=port, rack=rack)
            for node_id, host, port, rack in node.brokers_for(context.connection.listener)
        ],
        cluster_id=node.cluster_id,
        controller_id=node.node_id,
        topics=topics,
        cluster_authorized_operations=(
            CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NOT_ASKED
        ),
    )


def _find(
    node: Node,
    asked: MetadataRequestTopic,
    request: MetadataRequest,
    errors: Mapping[str, ApiError],
) -> MetadataResponseTopic:
    if asked.topic_id != ZERO_UUID:
        topic = node.image.topics_by_id.get(asked.topic_id)
        if topic is None:
            return MetadataResponseTopic(
                error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=asked.topic_id
            )
        return _describe(topic, request)
    name = asked.name
    assert name is not None
    topic = node.image.topics.get(name)
    if topic is not None:
        return _describe(topic, request)
    error = errors.get(name)
    return MetadataResponseTopic(
        # Without an error the topic was created, and deleted before this answer.
        error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if error is None else error.code,
        name=name,
        is_internal=name in INTERNAL_TOPICS,
    )


def _describe(topic: TopicImage, request: MetadataRequest) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=[
            MetadataResponsePartition(
                partition_index=index,
                leader_id=partition.leader,
                leader_epoch=partition.leader_epoch,
                replica_nodes=partition.replicas,
                isr_nodes=partition.isr,
            )
            for index, partition in enumerate(topic.partitions)
        ],
        topic_authorized_operations=(
            TOPIC_OPERATIONS if request.include_topic_authorized_operations else NOT_ASKED
        ),
    )
