"""UpdateFeatures, versions 0 to 2: raise or lower the levels of features (KIP-584, KIP-778)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ottla.broker.context import RequestContext
from ottla.broker.controller_decisions import carry_out_whole
from ottla.broker.node import Node
from ottla.controller.brokers import KRAFT_VERSION
from ottla.controller.features import (
    FeatureUpdate,
    UpgradeType,
    check_kraft_version,
    update_features,
)
from ottla.model.errors import ApiError, ErrorCode
from ottla.raft.messages import AnyResponse, UpgradeVotersRequest, UpgradeVotersResponse
from ottla.wire.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

FIRST_UPGRADE_TYPES = 1
LAST_WITH_RESULTS = 1
_UPGRADE_TYPES = {int(each): each for each in UpgradeType}


def handle(node: Node, request: UpdateFeaturesRequest, context: RequestContext) -> None:
    """Change all levels or none."""
    asked = [_update(each, context.version) for each in request.feature_updates]
    updates = [each for each in asked if each.name != KRAFT_VERSION]
    kraft = [each for each in asked if each.name == KRAFT_VERSION]
    if kraft:
        _check_kraft_version(node, kraft)

    def respond(error: ApiError | None) -> UpdateFeaturesResponse:
        if error is not None:
            return refuse(request, error, context)
        results = [
            UpdatableFeatureResult(feature=each.feature, error_message=None)
            for each in request.feature_updates
        ]
        return UpdateFeaturesResponse(
            error_message=None, results=results if context.version <= LAST_WITH_RESULTS else ()
        )

    if kraft and not updates and not request.validate_only:
        reply = context.defer()
        _upgrade_voters(node, lambda error: reply.send(respond(error)))
        return
    if kraft and not request.validate_only:
        raise ApiError(ErrorCode.INVALID_REQUEST, "Change kraft.version in a request of its own.")
    carry_out_whole(
        node,
        context,
        lambda image: update_features(image, node.config, updates, node.controller.voter_ids),
        respond,
        validate_only=request.validate_only,
    )


def _check_kraft_version(node: Node, updates: Sequence[FeatureUpdate]) -> None:
    controller = node.controller
    if len(updates) > 1:
        raise ApiError(ErrorCode.INVALID_REQUEST, "The request names a feature twice")
    if controller.member is None:
        raise ApiError(
            ErrorCode.INVALID_UPDATE_VERSION, "This broker is a cluster of its own, without voters."
        )
    now = controller.member.quorum.kraft_version
    check_kraft_version(controller.latest_image, node.config, updates[0], now, controller.voter_ids)


def _upgrade_voters(node: Node, done: Callable[[ApiError | None], None]) -> None:
    """Put the voters into the log. Nothing changes if they are there already."""

    def answered(response: AnyResponse, records: bytes | None) -> None:
        assert isinstance(response, UpgradeVotersResponse)
        failed = response.error is not ErrorCode.NONE
        done(ApiError(response.error, response.message or "") if failed else None)

    assert node.controller.member is not None
    node.controller.member.driver.request(UpgradeVotersRequest(), answered)


def _update(asked: FeatureUpdateKey, version: int) -> FeatureUpdate:
    if version >= FIRST_UPGRADE_TYPES:
        upgrade_type = _UPGRADE_TYPES.get(asked.upgrade_type, UpgradeType.UNKNOWN)
    else:
        downgrade = asked.allow_downgrade
        upgrade_type = UpgradeType.SAFE_DOWNGRADE if downgrade else UpgradeType.UPGRADE
    return FeatureUpdate(asked.feature, asked.max_version_level, upgrade_type)


def refuse(
    request: UpdateFeaturesRequest, error: ApiError, context: RequestContext
) -> UpdateFeaturesResponse:
    """Return the error. No feature has changed."""
    return UpdateFeaturesResponse(error_code=error.code, error_message=error.message)
