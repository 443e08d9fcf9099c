"""IncrementalAlterConfigs, versions 0 and 1: some settings of a resource (KIP-339)."""

from __future__ import annotations

from ottla.broker.context import RequestContext
from ottla.broker.decisions import change_configs
from ottla.broker.node import Node
from ottla.controller.configs import ConfigChange, ConfigOperation
from ottla.model.errors import ApiError
from ottla.wire.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)


def handle(node: Node, request: IncrementalAlterConfigsRequest, context: RequestContext) -> None:
    """Answer for each resource that it has changed, or why not."""
    changes = [
        ConfigChange(
            resource.resource_type,
            resource.resource_name,
            [
                ConfigOperation(config.name, config.config_operation, config.value)
                for config in resource.configs
            ],
        )
        for resource in request.resources
    ]
    change_configs(
        node,
        context,
        changes,
        lambda changed: IncrementalAlterConfigsResponse(
            responses=[AlterConfigsResourceResponse(**result._asdict()) for result in changed]
        ),
        validate_only=request.validate_only,
    )


def refuse(
    request: IncrementalAlterConfigsRequest, error: ApiError, context: RequestContext
) -> IncrementalAlterConfigsResponse:
    """Return the error for every resource."""
    return IncrementalAlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(
                error_code=error.code,
                error_message=error.message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource in request.resources
        ]
    )
