"""AlterConfigs, versions 0 to 2: replace all settings of a resource (KIP-133)."""

from __future__ import annotations

from ottla.broker.context import RequestContext
from ottla.broker.controller_decisions import change_configs
from ottla.broker.node import Node
from ottla.controller.configs import MOST_SETTINGS, ConfigChange, replacement
from ottla.model.errors import ApiError
from ottla.wire.lazy_list import LazyList
from ottla.wire.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)


def handle(node: Node, request: AlterConfigsRequest, context: RequestContext) -> None:
    """Answer for each resource whether it has changed, and if not, why."""
    change_configs(
        node,
        context,
        request.resources,
        _change,
        lambda changed: AlterConfigsResponse(
            responses=LazyList(
                lambda result: AlterConfigsResourceResponse(**result._asdict()), changed
            )
        ),
        validate_only=request.validate_only,
    )


def _change(resource: AlterConfigsResource) -> ConfigChange:
    return replacement(
        resource.resource_type,
        resource.resource_name,
        [(config.name, config.value) for config in resource.configs[: MOST_SETTINGS + 1]],
    )


def refuse(
    request: AlterConfigsRequest, error: ApiError, context: RequestContext
) -> AlterConfigsResponse:
    """Return the error for every resource."""
    return AlterConfigsResponse(
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
