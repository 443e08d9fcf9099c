"""ApiVersions, versions 0 to 4: what this broker speaks (KIP-35, KIP-511)."""

from __future__ import annotations

import re

from ottla.broker.context import RequestContext
from ottla.broker.node import Node
from ottla.broker.router import advertised
from ottla.model.errors import ApiError, ErrorCode
from ottla.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle(node: Node, request: ApiVersionsRequest, context: RequestContext) -> ApiVersionsResponse:
    """Every API with its versions."""
    if context.version >= 3:
        names = (request.client_software_name, request.client_software_version)
        if not all(_SOFTWARE.fullmatch(name) for name in names):
            raise ApiError(ErrorCode.INVALID_REQUEST)
        context.connection.client_software = " ".join(names)
    return ApiVersionsResponse(api_keys=_api_keys(), finalized_features_epoch=-1)


def unsupported_version() -> ApiVersionsResponse:
    """The answer to a version we do not know: an error, and the versions we do know."""
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=_api_keys())


def _api_keys() -> list[ApiVersion]:
    return [
        ApiVersion(api_key=key, min_version=oldest, max_version=newest)
        for key, oldest, newest in advertised()
    ]
