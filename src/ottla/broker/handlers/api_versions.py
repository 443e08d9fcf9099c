"""ApiVersions, versions 0 to 4: what this broker speaks and can do (KIP-35, KIP-511, KIP-584)."""

from __future__ import annotations

import re

from ottla.broker.context import RequestContext
from ottla.broker.handlers import advertised
from ottla.broker.node import Node
from ottla.controller.brokers import KRAFT_VERSION, SUPPORTED_FEATURES
from ottla.model.errors import ApiError, ErrorCode
from ottla.raft.voters import MAX_KRAFT_VERSION
from ottla.wire.api_table import ApiKey
from ottla.wire.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

FIRST_LEVEL_ZERO = 4
_LONGEST_KEPT = 256  # characters: a connection keeps its client's name for as long as it lives
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle(node: Node, request: ApiVersionsRequest, context: RequestContext) -> ApiVersionsResponse:
    """Return every API with its versions; from version 3 on, also the features and levels."""
    if context.version >= 3:
        names = (request.client_software_name, request.client_software_version)
        if not all(_SOFTWARE.fullmatch(name) for name in names):
            raise ApiError(ErrorCode.INVALID_REQUEST)
        context.connection.client_software = " ".join(names)[:_LONGEST_KEPT]
    return ApiVersionsResponse(
        api_keys=_api_keys(),
        supported_features=_supported(node, context.version),
        finalized_features_epoch=node.image.end_offset - 1,
        finalized_features=[
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in _levels(node).items()
        ],
    )


def _levels(node: Node) -> dict[str, int]:
    """Return the levels of features, also the one that is not in the image."""
    member = node.controller.member
    version = 0 if member is None else member.quorum.kraft_version
    return {**node.image.features, KRAFT_VERSION: version} if version else {**node.image.features}


def unsupported_version() -> ApiVersionsResponse:
    """Return the answer to an unknown version: an error, and the versions of this API."""
    own = [key for key in _api_keys() if key.api_key == ApiKey.API_VERSIONS]
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=own)


def _supported(node: Node, version: int) -> list[SupportedFeatureKey]:
    """Return the levels this broker supports; clients of version 3 do not understand level 0."""
    levels = SUPPORTED_FEATURES
    if not node.config.is_alone:
        levels = levels | {KRAFT_VERSION: (0, MAX_KRAFT_VERSION)}
    return [
        SupportedFeatureKey(name=name, min_version=lowest, max_version=highest)
        for name, (lowest, highest) in levels.items()
        if lowest > 0 or version >= FIRST_LEVEL_ZERO
    ]


def _api_keys() -> list[ApiVersion]:
    return [
        ApiVersion(api_key=key, min_version=oldest, max_version=newest)
        for key, oldest, newest in advertised()
    ]
