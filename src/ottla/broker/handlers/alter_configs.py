"""AlterConfigs, versions 0 to 2: all settings of a resource anew (KIP-133)."""

from __future__ import annotations

from ottla.broker.context import RequestContext
from ottla.broker.decisions import carry_out, error_fields
from ottla.broker.node import Node
from ottla.controller.configs import alter_configs, replacement
from ottla.wire.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)


def handle(
    node: Node, request: AlterConfigsRequest, context: RequestContext
) -> AlterConfigsResponse:
    """Each resource, changed or why not."""
    changes = [
        replacement(
            resource.resource_type,
            resource.resource_name,
            [(config.name, config.value) for config in resource.configs],
        )
        for resource in request.resources
    ]
    decision = alter_configs(node.image, node.config, changes)
    failure = carry_out(node, decision.records, validate_only=request.validate_only)
    responses = []
    for changed in decision.results:
        code, message = error_fields(changed.error or failure)
        responses.append(
            AlterConfigsResourceResponse(
                error_code=code,
                error_message=message,
                resource_type=changed.resource_type,
                resource_name=changed.resource_name,
            )
        )
    return AlterConfigsResponse(responses=responses)
