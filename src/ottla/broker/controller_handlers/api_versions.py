"""ApiVersions, versions 0 to 4: what a controller speaks and can do (KIP-35, KIP-584, KIP-919)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.context import RequestContext
from ottla.broker.controller_handlers import CONTROLLER_SERVED
from ottla.broker.handlers import api_versions
from ottla.controller.brokers import features_in_a_cluster
from ottla.wire.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    SupportedFeatureKey,
)

if TYPE_CHECKING:
    from ottla.broker.node import Node


def handle(node: Node, request: ApiVersionsRequest, context: RequestContext) -> ApiVersionsResponse:
    """Return every API of controllers with its versions, and the features of the cluster."""
    response = api_versions.handle(node, request, context)
    response.api_keys = [
        ApiVersion(api_key=int(key), min_version=served.oldest, max_version=served.newest)
        for key, served in sorted(CONTROLLER_SERVED.items())
    ]
    response.supported_features = [
        SupportedFeatureKey(name=name, min_version=lowest, max_version=highest)
        for name, lowest, highest in features_in_a_cluster()
        if lowest > 0 or context.version >= api_versions.FIRST_LEVEL_ZERO
    ]
    return response
