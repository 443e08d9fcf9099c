"""DescribeConfigs, versions 1 to 4: settings, their sources and synonyms (KIP-133, KIP-226)."""

from __future__ import annotations

from ottla.broker.context import RequestContext
from ottla.broker.controller_decisions import error_fields
from ottla.broker.node import Node
from ottla.config.describe import (
    TYPE_NUMBERS,
    Entry,
    describe_all_brokers,
    describe_broker,
    describe_group,
    describe_topic,
)
from ottla.controller.configs import unsupported_resource
from ottla.model.config_resources import ResourceType
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.steps import Steps
from ottla.model.topic_names import check_topic_name
from ottla.wire.lazy_list import LazyList
from ottla.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

MOST_BYTES = 16 * 1024 * 1024
"""About how large a response may be. Further resources get an error."""


def handle(
    node: Node, request: DescribeConfigsRequest, context: RequestContext
) -> Steps[DescribeConfigsResponse]:
    """Return the settings of each resource, all or those asked for, or an error.

    A resource that the request names several times is described once.
    """
    asked: dict[tuple[int, str], set[str] | None] = {}
    for resource in request.resources:
        _add_keys(asked, resource)
        yield
    description = _Description(node, request)
    return DescribeConfigsResponse(results=LazyList(description.describe, list(asked.items())))


def _add_keys(
    asked: dict[tuple[int, str], set[str] | None], resource: DescribeConfigsResource
) -> None:
    """Note which settings of a resource are asked for; None means all."""
    name = (resource.resource_type, resource.resource_name)
    keys = resource.configuration_keys
    before = asked.setdefault(name, set())
    if not keys or before is None:
        asked[name] = None
    else:
        before.update(keys)


def refuse(
    request: DescribeConfigsRequest, error: ApiError, context: RequestContext
) -> DescribeConfigsResponse:
    """Return the error for every resource."""
    return DescribeConfigsResponse(
        results=LazyList(
            lambda resource: DescribeConfigsResult(
                error_code=error.code,
                error_message=error.message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            ),
            request.resources,
        )
    )


class _Description:
    """Describes the resources of one request, as long as the response is not too large."""

    def __init__(self, node: Node, request: DescribeConfigsRequest) -> None:
        self._node = node
        self._request = request
        self._bytes = 0

    def describe(self, asked: tuple[tuple[int, str], set[str] | None]) -> DescribeConfigsResult:
        """Return the settings of a resource, or an error."""
        (kind, name), keys = asked
        error: ApiError | None = None
        entries: list[Entry] = []
        try:
            if self._bytes > MOST_BYTES:
                raise ApiError(
                    ErrorCode.POLICY_VIOLATION,
                    f"The response has more than {MOST_BYTES} bytes: split the request up",
                )
            entries = _entries(self._node, kind, name)
        except ApiError as refusal:
            error = refusal.with_traceback(None)  # which refers to this frame
        code, message = error_fields(error)
        configs = [
            _config(entry, self._request)
            for entry in entries
            if keys is None or entry.setting.name in keys
        ]
        self._bytes += sum(map(_size, configs))
        return DescribeConfigsResult(
            error_code=code,
            error_message=message or "",
            resource_type=kind,
            resource_name=name,
            configs=configs,
        )


def _size(config: DescribeConfigsResourceResult) -> int:
    """Return about how many bytes a setting takes in the response."""
    synonyms = sum(len(each.name) + len(each.value or "") + 6 for each in config.synonyms)
    texts = (config.name, config.value or "", config.documentation or "")
    return sum(map(len, texts)) + synonyms + 12


def _entries(node: Node, kind: int, name: str) -> list[Entry]:
    if kind == ResourceType.TOPIC:
        check_topic_name(name)
        if name not in node.image.topics:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic {name}")
        return describe_topic(node.config, node.image.topic_config(name))
    if kind == ResourceType.BROKER:
        _check_broker_id(name, node.config.node.node_id)
        return describe_broker(node.config) if name else describe_all_brokers(node.config)
    if kind == ResourceType.GROUP:
        if not name:
            raise ApiError(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
        return describe_group(node.config, node.image.config_of(ResourceType.GROUP, name))
    raise unsupported_resource(kind)


def _check_broker_id(name: str, own_id: int) -> None:
    if name in ("", str(own_id)):
        return
    if not name.lstrip("-").isdecimal():
        raise ApiError(
            ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name}"
        )
    raise ApiError(
        ErrorCode.INVALID_REQUEST,
        f"Unexpected broker id, expected {own_id} or empty string, but received {name}",
    )


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
