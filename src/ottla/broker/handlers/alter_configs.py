"""AlterConfigs, versions 0 to 2: all settings of a resource anew (KIP-133)."""

from __future__ import annotations

from ottla.broker.context import RequestContext
from ottla.broker.decisions import change_configs
from ottla.broker.node import Node
from ottla.controller.configs import replacement
from ottla.model.errors import ApiError
from ottla.wire.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)


def handle(node: Node, request: AlterConfigsRequest, context: RequestContext) -> None:
    """Answer for each resource that it has changed, or why not."""
    changes = [
        replacement(
            resource.resource_type,
            resource.resource_name,
            [(config.name, config.value) for config in resource.configs],
        )
        for resource in request.resources
    ]
    change_configs(
        node,
        context,
        changes,
        lambda changed: AlterConfigsResponse(
            responses=[AlterConfigsResourceResponse(**result._asdict()) for result in changed]
        ),
        validate_only=request.validate_only,
    )


def refuse(
    request: AlterConfigsRequest, error: ApiError, context: RequestContext
) -> AlterConfigsResponse:
    """Return the error for every resource."""
    return AlterConfigsResponse(
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
