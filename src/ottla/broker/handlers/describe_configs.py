"""DescribeConfigs, versions 1 to 4: settings, their sources and synonyms (KIP-133, KIP-226)."""

from __future__ import annotations

from ottla.broker.context import RequestContext
from ottla.broker.decisions import error_fields
from ottla.broker.node import Node
from ottla.config.describe import (
    TYPE_NUMBERS,
    Entry,
    describe_all_brokers,
    describe_broker,
    describe_group,
    describe_topic,
)
from ottla.controller.configs import check_broker_name, unsupported_resource
from ottla.controller.group_configs import check_group_name
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.resources import ResourceType
from ottla.model.topic_names import check_topic_name
from ottla.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)


def handle(
    node: Node, request: DescribeConfigsRequest, context: RequestContext
) -> DescribeConfigsResponse:
    """Return the settings of each resource, all or those asked for, or an error."""
    return DescribeConfigsResponse(
        results=[_describe(node, resource, request) for resource in request.resources]
    )


def refuse(
    request: DescribeConfigsRequest, error: ApiError, context: RequestContext
) -> DescribeConfigsResponse:
    """Return the error for every resource."""
    return DescribeConfigsResponse(
        results=[
            DescribeConfigsResult(
                error_code=error.code,
                error_message=error.message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource in request.resources
        ]
    )


def _describe(
    node: Node, resource: DescribeConfigsResource, request: DescribeConfigsRequest
) -> DescribeConfigsResult:
    error: ApiError | None = None
    entries: list[Entry] = []
    try:
        entries = _entries(node, resource.resource_type, resource.resource_name)
    except ApiError as refusal:
        error = refusal
    code, message = error_fields(error)
    asked = set(resource.configuration_keys or ())
    return DescribeConfigsResult(
        error_code=code,
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=[
            _config(entry, request) for entry in entries if not asked or entry.setting.name in asked
        ],
    )


def _entries(node: Node, kind: int, name: str) -> list[Entry]:
    if kind == ResourceType.TOPIC:
        check_topic_name(name)
        if name not in node.image.topics:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic {name}")
        return describe_topic(node.config, node.image.topic_config(name))
    if kind == ResourceType.BROKER:
        check_broker_name(name, node.config)
        return describe_broker(node.config) if name else describe_all_brokers(node.config)
    if kind == ResourceType.GROUP:
        check_group_name(name)
        return describe_group(node.config, node.image.config_of(ResourceType.GROUP, name))
    raise unsupported_resource(kind)


def _config(entry: Entry, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    setting = entry.setting
    return DescribeConfigsResourceResult(
        name=setting.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=entry.source,
        is_sensitive=setting.sensitive,
        synonyms=[
            DescribeConfigsSynonym(name=name, value=value, source=source)
            for name, value, source in (entry.synonyms if request.include_synonyms else ())
        ],
        config_type=TYPE_NUMBERS[setting.type],
        documentation=setting.doc if request.include_documentation else None,
    )
