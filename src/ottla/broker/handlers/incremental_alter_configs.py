"""IncrementalAlterConfigs, versions 0 and 1: some settings of a resource (KIP-339)."""

from __future__ import annotations

from ottla.broker.context import RequestContext
from ottla.broker.controller_decisions import change_configs
from ottla.broker.node import Node
from ottla.controller.configs import MOST_SETTINGS, ConfigChange, ConfigOperation
from ottla.model.errors import ApiError
from ottla.wire.lazy_list import LazyList
from ottla.wire.messages.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)


def handle(node: Node, request: IncrementalAlterConfigsRequest, context: RequestContext) -> None:
    """Answer for each resource that it has changed, or why not."""
    change_configs(
        node,
        context,
        request.resources,
        _change,
        lambda changed: IncrementalAlterConfigsResponse(
            responses=LazyList(
                lambda result: AlterConfigsResourceResponse(**result._asdict()), changed
            )
        ),
        validate_only=request.validate_only,
    )


def _change(resource: AlterConfigsResource) -> ConfigChange:
    return ConfigChange(
        resource.resource_type,
        resource.resource_name,
        [
            ConfigOperation(config.name, config.config_operation, config.value)
            for config in resource.configs[: MOST_SETTINGS + 1]
        ],
    )


def refuse(
    request: IncrementalAlterConfigsRequest, error: ApiError, context: RequestContext
) -> IncrementalAlterConfigsResponse:
    """Return the error for every resource."""
    return IncrementalAlterConfigsResponse(
        responses=LazyList(
            lambda resource: AlterConfigsResourceResponse(
                error_code=error.code,
                error_message=error.message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            ),
            request.resources,
        )
    )
