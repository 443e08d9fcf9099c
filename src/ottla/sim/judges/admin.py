"""Topics, settings and producer ids: what is acknowledged holds, what is refused has a reason."""

from __future__ import annotations

from ottla.model.config_resources import ResourceType
from ottla.model.errors import ErrorCode
from ottla.sim.judges.conditions import Conditions
from ottla.sim.model.cluster import ClusterModel
from ottla.sim.network.exchange import Exchange, Violation
from ottla.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from ottla.wire.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from ottla.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from ottla.wire.messages.incremental_alter_configs import (
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from ottla.wire.messages.init_producer_id import InitProducerIdResponse
from ottla.wire.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseTopic

FIRST_TOPIC_ID_IN_CREATE = 7
FIRST_TOPIC_ID_IN_METADATA = 10
TOPIC_CONFIG = 1
_SET = 0


def judge_create_topics(model: ClusterModel, exchange: Exchange, conditions: Conditions) -> None:
    """Check which topics were created, and know them."""
    request, reply = exchange.request, exchange.reply
    assert isinstance(request, CreateTopicsRequest)
    assert isinstance(reply, CreateTopicsResponse)
    wanted = {topic.name: topic for topic in request.topics}
    for result in reply.topics:
        topic, code = wanted[result.name], result.error_code
        if code == 0:
            if result.name in model.topics:
                raise Violation(f"{exchange!r}: {result.name} exists")
            if not request.validate_only:
                topic_id = result.topic_id if exchange.version >= FIRST_TOPIC_ID_IN_CREATE else b""
                model.add_topic(topic.name, topic_id, topic.num_partitions, configs_of(topic))
        elif not (
            (code == ErrorCode.TOPIC_ALREADY_EXISTS and result.name in model.topics)
            or _could_not_store(model, exchange, conditions, code)
        ):
            raise Violation(f"{exchange!r}: answered {result}")


def _could_not_store(
    model: ClusterModel, exchange: Exchange, conditions: Conditions, code: int
) -> bool:
    """Return whether a refusal says that the disk failed, and it did.

    What was refused so is undone; where the disk kept the undoing from being forced as well, a
    crash before the next write decides what happened.
    """
    if code != ErrorCode.KAFKA_STORAGE_ERROR or not conditions.metadata_may_fail(
        exchange.handled_ms
    ):
        return False
    model.unanswered.append(exchange)
    return True


def configs_of(topic: CreatableTopic) -> dict[str, str]:
    """Return the settings a topic is created with."""
    return {config.name: config.value or "" for config in topic.configs}


def judge_delete_topics(model: ClusterModel, exchange: Exchange, conditions: Conditions) -> None:
    """Check which topics were deleted, and forget them."""
    request, reply = exchange.request, exchange.reply
    assert isinstance(request, DeleteTopicsRequest)
    assert isinstance(reply, DeleteTopicsResponse)
    for result in reply.responses:
        code, name = result.error_code, result.name or ""
        if code == 0:
            if name not in model.topics:
                raise Violation(f"{exchange!r}: deleted {name}, which is not there")
            model.remove_topic(name)
        elif not (
            (code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and name not in model.topics)
            or (
                code == ErrorCode.UNKNOWN_TOPIC_ID
                and all(topic.topic_id != result.topic_id for topic in model.topics.values())
            )
            or _could_not_store(model, exchange, conditions, code)
        ):
            raise Violation(f"{exchange!r}: answered {result}")


def judge_create_partitions(
    model: ClusterModel, exchange: Exchange, conditions: Conditions
) -> None:
    """Check which topics grew."""
    request, reply = exchange.request, exchange.reply
    assert isinstance(request, CreatePartitionsRequest)
    assert isinstance(reply, CreatePartitionsResponse)
    for asked, result in zip(request.topics, reply.results, strict=True):
        topic, code = model.topics.get(result.name), result.error_code
        grows = topic is not None and asked.count > len(topic.partitions)
        if code == 0 and grows:
            assert topic is not None
            if not request.validate_only:
                topic.grow(asked.count)
        elif not (
            (code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and topic is None)
            or (code == ErrorCode.INVALID_PARTITIONS and topic is not None and not grows)
            or _could_not_store(model, exchange, conditions, code)
        ):
            raise Violation(f"{exchange!r}: answered {result}")


def judge_alter_configs(model: ClusterModel, exchange: Exchange, conditions: Conditions) -> None:
    """Check whose settings changed, and know them."""
    request, reply = exchange.request, exchange.reply
    assert isinstance(request, IncrementalAlterConfigsRequest)
    assert isinstance(reply, IncrementalAlterConfigsResponse)
    for asked, result in zip(request.resources, reply.responses, strict=True):
        topic, code = model.topics.get(result.resource_name), result.error_code
        if code == 0 and topic is not None:
            if not request.validate_only:
                topic.set_configs(changed(topic.configs, asked))
        elif not (
            (code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and topic is None)
            or _could_not_store(model, exchange, conditions, code)
        ):
            raise Violation(f"{exchange!r}: answered {result}")


def changed(configs: dict[str, str], asked: AlterConfigsResource) -> dict[str, str]:
    """Return the settings after the change."""
    configs = dict(configs)
    for config in asked.configs:
        if config.config_operation == _SET:
            configs[config.name] = config.value or ""
        else:
            configs.pop(config.name, None)
    return configs


def judge_describe_configs(model: ClusterModel, exchange: Exchange, conditions: Conditions) -> None:
    """Check the settings topics are said to have."""
    request, reply = exchange.request, exchange.reply
    assert isinstance(request, DescribeConfigsRequest)
    assert isinstance(reply, DescribeConfigsResponse)
    for result in reply.results:
        if result.resource_type != ResourceType.TOPIC:
            continue
        topic = model.topics.get(result.resource_name)
        if (result.error_code != 0) != (topic is None):
            raise Violation(f"{exchange!r}: answered {result.error_code}: {result.error_message}")
        if topic is not None and own_configs(reply)[topic.name] != topic.configs:
            raise Violation(
                f"{topic.name} has {topic.configs}, told {own_configs(reply)[topic.name]}"
            )


def own_configs(reply: DescribeConfigsResponse) -> dict[str, dict[str, str]]:
    """Return the settings of topics that are their own and not the broker's."""
    return {
        result.resource_name: {
            config.name: config.value or ""
            for config in result.configs
            if config.config_source == TOPIC_CONFIG
        }
        for result in reply.results
    }


def judge_metadata(model: ClusterModel, exchange: Exchange, conditions: Conditions) -> None:
    """Check the topics a client was told of; one it asked for may have been created for it."""
    request, reply = exchange.request, exchange.reply
    assert isinstance(request, MetadataRequest)
    assert isinstance(reply, MetadataResponse)
    for topic in reply.topics:
        if not topic.is_internal:
            _judge_topic(model, exchange, topic, conditions)
    told = {topic.name for topic in reply.topics if not topic.is_internal}
    if request.topics is None and told != set(model.topics):
        raise Violation(f"{exchange!r}: there are {sorted(model.topics)}, told {reply.topics}")


def _judge_topic(
    model: ClusterModel, exchange: Exchange, answer: MetadataResponseTopic, conditions: Conditions
) -> None:
    name = answer.name or ""
    topic = model.topics.get(name)
    request = exchange.request
    assert isinstance(request, MetadataRequest)
    creates = model.auto_creates and (request.allow_auto_topic_creation or exchange.version < 4)
    if answer.error_code:
        absent = answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and not creates
        if topic is not None or not (
            absent or _could_not_store(model, exchange, conditions, answer.error_code)
        ):
            raise Violation(f"{exchange!r}: answered {answer}")
        return
    has_id = exchange.version >= FIRST_TOPIC_ID_IN_METADATA
    topic_id = answer.topic_id if has_id else b""
    if topic is None:
        if not creates or request.topics is None:
            raise Violation(f"{exchange!r}: {name} is not there")
        topic = model.add_topic(name, topic_id, len(answer.partitions), {})
    if len(answer.partitions) != len(topic.partitions):
        raise Violation(f"{exchange!r}: {name} has {len(topic.partitions)} partitions")
    if has_id:
        model.learn_id(topic, topic_id)


def judge_init_producer_id(model: ClusterModel, exchange: Exchange, conditions: Conditions) -> None:
    """Check that a producer id is given once."""
    reply = exchange.reply
    assert isinstance(reply, InitProducerIdResponse)
    if reply.error_code:
        if reply.error_code != ErrorCode.KAFKA_STORAGE_ERROR or not conditions.metadata_may_fail(
            exchange.handled_ms
        ):
            raise Violation(f"{exchange!r}: answered {reply}")
    elif reply.producer_id in model.producer_ids:
        raise Violation(f"{exchange!r}: the producer id {reply.producer_id} was given before")
    else:
        model.producer_ids.add(reply.producer_id)
