"""Features of the cluster and their levels (KIP-584)."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import NamedTuple

from ottla.client.cluster import Client
from ottla.client.errors import check
from ottla.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.wire.messages.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)


class UpgradeType(IntEnum):
    """Which changes of a level are meant."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class Feature(NamedTuple):
    """A feature: its level in the cluster, and the levels that the broker supports."""

    name: str
    level: int
    lowest: int | None
    highest: int | None


def describe_features(client: Client) -> list[Feature]:
    """Return the features of the cluster, by name."""
    deadline = client.deadline("describing the features")
    request = ApiVersionsRequest(client_software_name="ottla", client_software_version="cli")

    def ask() -> list[Feature]:
        response = client.call(client.any(deadline), request, ApiVersionsResponse, deadline)
        check(response.error_code, "the features of the cluster")
        levels = {each.name: each.max_version_level for each in response.finalized_features}
        ranges = {
            each.name: (each.min_version, each.max_version) for each in response.supported_features
        }
        return [
            Feature(name, levels.get(name, 0), *ranges.get(name, (None, None)))
            for name in sorted({*levels, *ranges})
        ]

    return client.retry(ask, deadline, harmless_twice=True)


def update_features(
    client: Client, levels: Mapping[str, int], upgrade_type: UpgradeType, *, validate_only: bool
) -> None:
    """Change the levels of features, all of them or none."""
    deadline = client.deadline("changing features")
    request = UpdateFeaturesRequest(
        timeout=int(client.timeout_ms),
        validate_only=validate_only,
        feature_updates=[
            FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=upgrade_type)
            for name, level in levels.items()
        ],
    )

    def ask() -> None:
        connection = client.controller(deadline)
        response = client.call(connection, request, UpdateFeaturesResponse, deadline)
        check(response.error_code, "the features", response.error_message)

    client.retry(ask, deadline, harmless_twice=True)
