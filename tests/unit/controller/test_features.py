"""UpdateFeatures: a level that every broker and controller supports, or a reason."""

from __future__ import annotations

import pytest

from ottla.config.broker import BrokerConfig
from ottla.controller.brokers import begin_cluster, register_broker
from ottla.controller.features import FeatureUpdate, UpgradeType, update_features
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import FeatureRange, MetadataImage
from ottla.metadata.records import BrokerFeature, RegisterControllerRecord
from ottla.model.errors import ApiError, ErrorCode
from ottla.wire.message import Message

ELR = "eligible.leader.replicas.version"


@pytest.fixture
def image() -> MetadataImage:
    new = MetadataImage("cluster")
    return MetadataDelta(new).replay_all([*begin_cluster(new), *broker(1)]).apply()


def broker(broker_id: int, *features: FeatureRange) -> list[Message]:
    return register_broker(
        broker_id=broker_id,
        broker_epoch=1,
        incarnation_id=b"i" * 16,
        endpoints=(),
        rack=None,
        log_dirs=(),
        features=features or None,
    )


def after(
    image: MetadataImage, *updates: FeatureUpdate, voters: tuple[int, ...] = ()
) -> dict[str, int]:
    records = update_features(image, BrokerConfig(), updates, voters)
    return dict(MetadataDelta(image).replay_all(records).apply().features)


def refusal(image: MetadataImage, *updates: FeatureUpdate, voters: tuple[int, ...] = ()) -> str:
    with pytest.raises(ApiError) as caught:
        update_features(image, BrokerConfig(), updates, voters)
    assert caught.value.code == ErrorCode.INVALID_UPDATE_VERSION
    return caught.value.message or ""


def test_a_new_cluster_has_no_eligible_leader_replicas(image: MetadataImage) -> None:
    assert image.features == {"metadata.version": 25, "group.version": 1, "transaction.version": 2}


def test_levels_go_up_and_down(image: MetadataImage) -> None:
    assert after(image, FeatureUpdate(ELR, 1))[ELR] == 1
    lower = FeatureUpdate("group.version", 0, UpgradeType.SAFE_DOWNGRADE)
    assert "group.version" not in after(image, lower)


def test_all_controllers_count_with_the_same_min_insync_replicas(image: MetadataImage) -> None:
    config = BrokerConfig({"min.insync.replicas": "2"})
    records = update_features(image, config, [FeatureUpdate(ELR, 1)], ())
    changed = MetadataDelta(image).replay_all(records).apply()
    assert changed.config_of(4, "") == {"min.insync.replicas": "2"}


@pytest.mark.parametrize(
    ("update", "words"),
    [
        (FeatureUpdate(ELR, 2), "supports the levels 0 to 1"),
        (FeatureUpdate(ELR, -1), "less than 0"),
        (FeatureUpdate("share.version", 1), "this controller does not support"),
        (FeatureUpdate("group.version", 0), "does not allow to lower"),
        (FeatureUpdate(ELR, 1, UpgradeType.SAFE_DOWNGRADE), "asks to lower"),
        (FeatureUpdate("metadata.version", 20, UpgradeType.UNSAFE_DOWNGRADE), "get lost"),
    ],
)
def test_levels_that_are_not_possible(
    image: MetadataImage, update: FeatureUpdate, words: str
) -> None:
    assert words in refusal(image, update)


def test_every_broker_and_controller_must_support_it(image: MetadataImage) -> None:
    old = broker(2, FeatureRange("metadata.version", 7, 25))
    with_old = MetadataDelta(image).replay_all(old).apply()
    assert "broker 2 does not support this feature" in refusal(with_old, FeatureUpdate(ELR, 1))
    assert "controller 3 has not registered" in refusal(image, FeatureUpdate(ELR, 1), voters=(3,))
    registration = RegisterControllerRecord(
        controller_id=3,
        features=[BrokerFeature(name=ELR, min_supported_version=0, max_supported_version=1)],
    )
    registered = MetadataDelta(image).replay_all([registration]).apply()
    assert after(registered, FeatureUpdate(ELR, 1), voters=(3,))[ELR] == 1
    lacking = MetadataDelta(image).replay_all([RegisterControllerRecord(controller_id=3)]).apply()
    assert "controller 3 does not support" in refusal(lacking, FeatureUpdate(ELR, 1), voters=(3,))
