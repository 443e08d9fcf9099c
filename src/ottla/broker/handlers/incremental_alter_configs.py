"""IncrementalAlterConfigs, versions 0 and 1: some settings of a resource (KIP-339)."""

from __future__ import annotations

from ottla.broker.context import RequestContext
from ottla.broker.decisions import carry_out, error_fields
from ottla.broker.node import Node
from ottla.controller.configs import ConfigChange, ConfigOperation, alter_configs
from ottla.wire.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)


def handle(
    node: Node, request: IncrementalAlterConfigsRequest, context: RequestContext
) -> IncrementalAlterConfigsResponse:
    """Each resource, changed or why not."""
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
    return IncrementalAlterConfigsResponse(responses=responses)
