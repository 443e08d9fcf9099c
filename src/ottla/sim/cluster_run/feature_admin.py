"""An administrator who changes the levels of features while the cluster works.

It switches eligible leader replicas on and off (KIP-966), and raises and lowers metadata.version
between levels whose records are the same. Each change is tried until a controller takes it.
"""

from __future__ import annotations

from random import Random as Generator

from ottla.controller.brokers import ELR_VERSION, METADATA_VERSION
from ottla.metadata.image import MetadataImage
from ottla.model.errors import ErrorCode
from ottla.sim.cluster_run.admin import TIMEOUT_MS, ClusterAdmin, ClusterRunOfAdmin
from ottla.wire.message import Message
from ottla.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest

_LEVELS = {ELR_VERSION: (0, 1), METADATA_VERSION: (23, 24, 25, 26)}
_UPGRADE, _SAFE_DOWNGRADE = 1, 2


class FeatureAdmin(ClusterAdmin):
    """Changes one level after the other, or sets eligible leader replicas only once."""

    THINK_MS = (50.0, 200.0, 1500.0)
    EXPECTED = ClusterAdmin.EXPECTED | {ErrorCode.INVALID_UPDATE_VERSION}  # not all have registered

    def __init__(
        self, name: str, environment: ClusterRunOfAdmin, chance: Generator, once: int | None = None
    ) -> None:
        super().__init__(name, environment, chance)
        self._once = once
        self._actions = (self._change if once is None else self._set,)

    def _set(self, image: MetadataImage) -> tuple[Message, int] | None:
        return _update(image, ELR_VERSION, self._once or 0)

    def _change(self, image: MetadataImage) -> tuple[Message, int] | None:
        name = self.chance.choice(list(_LEVELS))
        return _update(image, name, self.chance.choice(_LEVELS[name]))


def _update(image: MetadataImage, name: str, level: int) -> tuple[Message, int] | None:
    now = image.features.get(name, 0)
    if METADATA_VERSION not in image.features or now == level:
        return None
    update = FeatureUpdateKey(
        feature=name,
        max_version_level=level,
        upgrade_type=_UPGRADE if level > now else _SAFE_DOWNGRADE,
    )
    return UpdateFeaturesRequest(timeout=TIMEOUT_MS, feature_updates=[update]), 1
