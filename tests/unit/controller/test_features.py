"""UpdateFeatures: a level that every broker and controller supports, or a reason."""

from __future__ import annotations

import pytest

from ottla.config.broker import BrokerConfig
from ottla.controller.brokers import register_broker
from ottla.controller.eligible_leaders import begin_cluster
from ottla.controller.features import FeatureUpdate, UpgradeType, check_kraft_version
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import FeatureRange, MetadataImage, PartitionImage
from ottla.metadata.records import (
    NO_LEADER,
    BrokerFeature,
    PartitionRecord,
    RegisterControllerRecord,
    TopicRecord,
)
from ottla.model.errors import ApiError, ErrorCode
from ottla.wire.message import Message
from tests.support.decisions import update_features

ELR = "eligible.leader.replicas.version"
SAFE, UNSAFE = UpgradeType.SAFE_DOWNGRADE, UpgradeType.UNSAFE_DOWNGRADE
TOPIC_ID = b"t" * 16


@pytest.fixture
def image() -> MetadataImage:
    new = MetadataImage("cluster")
    return MetadataDelta(new).replay_all([*begin_cluster(new, BrokerConfig()), *broker(1)]).apply()


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


def at(level: int, **others: int) -> MetadataImage:
    """Return a cluster of one broker with this metadata.version."""
    features = {"metadata.version": level, **others}
    return MetadataDelta(MetadataImage("cluster", features=features)).replay_all(broker(1)).apply()


def partition_of(image: MetadataImage) -> PartitionImage:
    return image.topics["a"].partitions[0]


def test_levels_go_up_and_down(image: MetadataImage) -> None:
    lower = FeatureUpdate("group.version", 0, SAFE)
    assert "group.version" not in after(image, lower)
    assert after(image, FeatureUpdate("transaction.version", 1, UNSAFE))["transaction.version"] == 1
    assert after(image, FeatureUpdate("metadata.version", 30))["metadata.version"] == 30


@pytest.mark.parametrize(
    ("now", "level"),
    [(25, 24), (25, 23), (29, 23), (22, 17), (16, 15), (12, 11), (10, 8), (25, 25)],
)
@pytest.mark.parametrize("upgrade_type", [SAFE, UNSAFE])
def test_metadata_version_is_lowered_if_the_records_are_the_same(
    now: int, level: int, upgrade_type: UpgradeType
) -> None:
    update = FeatureUpdate("metadata.version", level, upgrade_type)
    assert after(at(now), update) == {"metadata.version": level}


@pytest.mark.parametrize(
    ("now", "level"), [(25, 22), (30, 29), (23, 7), (17, 16), (14, 13), (8, 7)]
)
def test_metadata_version_is_not_lowered_if_records_would_be_lost(now: int, level: int) -> None:
    start = (
        "The update failed for all features since the following feature had an error:"
        f" Unsupported metadata.version downgrade from {now} to {level}. "
    )
    assert refusal(at(now), FeatureUpdate("metadata.version", level, SAFE)) == (
        f"{start}Refusing to perform the requested downgrade because it might delete metadata"
        " information."
    )
    assert refusal(at(now), FeatureUpdate("metadata.version", level, UNSAFE)) == (
        f"{start}Unsafe metadata downgrade is not supported in this version."
    )


def test_levels_of_one_request_change_together(image: MetadataImage) -> None:
    updates = FeatureUpdate("metadata.version", 23, SAFE), FeatureUpdate(ELR, 0, SAFE)
    assert after(image, *updates) == {
        "metadata.version": 23,
        "group.version": 1,
        "transaction.version": 2,
    }
    both = FeatureUpdate("metadata.version", 24, SAFE), FeatureUpdate(ELR, 9)
    assert "only supports versions 0-1" in refusal(image, *both)


def test_all_controllers_count_with_the_same_min_insync_replicas() -> None:
    config = BrokerConfig({"min.insync.replicas": "2"})
    records = update_features(at(25), config, [FeatureUpdate(ELR, 1)], ())
    changed = MetadataDelta(at(25)).replay_all(records).apply()
    assert changed.config_of(4, "") == {"min.insync.replicas": "2"}


@pytest.mark.parametrize(
    ("eligible", "last_known", "isr"), [([2, 3], [1], (2, 3)), ([], [1], (1,)), ([], [], ())]
)
def test_without_eligible_leaders_those_that_may_lead_are_in_sync(
    image: MetadataImage, eligible: list[int], last_known: list[int], isr: tuple[int, ...]
) -> None:
    topic = TopicRecord(name="a", topic_id=TOPIC_ID)
    partition = PartitionRecord(
        partition_id=0,
        topic_id=TOPIC_ID,
        replicas=[1, 2, 3],
        isr=[],
        leader=NO_LEADER,
        eligible_leader_replicas=eligible,
        last_known_elr=last_known,
    )
    stuck = MetadataDelta(image).replay_all([topic, partition]).apply()
    records = update_features(stuck, BrokerConfig(), [FeatureUpdate(ELR, 0, SAFE)], ())
    changed = partition_of(MetadataDelta(stuck).replay_all(records).apply())
    assert changed.isr == isr
    assert (changed.eligible_leader_replicas, changed.last_known_elr) == ((), ())


@pytest.mark.parametrize(
    ("update", "words"),
    [
        (FeatureUpdate(ELR, 2), "Local controller 1 only supports versions 0-1"),
        (FeatureUpdate(ELR, -1), "A feature version cannot be less than 0."),
        (FeatureUpdate("share.version", 1), "Local controller 1 does not support this feature."),
        (
            FeatureUpdate("group.version", 0),
            "Can't downgrade the version of this feature without setting the upgrade type to either"
            " safe or unsafe downgrade.",
        ),
        (FeatureUpdate("metadata.version", 26, SAFE), "Can't downgrade to a newer version."),
        (
            FeatureUpdate(ELR, 1, UpgradeType.UNKNOWN),
            "The controller does not support the given upgrade type.",
        ),
        (FeatureUpdate("metadata.version", 6, SAFE), "Local controller 1 only supports versions 7"),
    ],
)
def test_levels_that_are_not_possible(
    image: MetadataImage, update: FeatureUpdate, words: str
) -> None:
    start = f"had an error: Invalid update version {update.level} for feature {update.name}. "
    assert start + words in refusal(image, update)


def test_eligible_leaders_need_records_of_their_own() -> None:
    assert (
        "eligible.leader.replicas.version could not be set to 1 because it depends on"
        " metadata.version level 23"
    ) in refusal(at(22), FeatureUpdate(ELR, 1))
    both = FeatureUpdate("metadata.version", 23), FeatureUpdate(ELR, 1)
    assert after(at(22), *both) == {"metadata.version": 23, ELR: 1}


def test_every_broker_and_controller_must_support_it() -> None:
    image = at(25)
    old = broker(2, FeatureRange("metadata.version", 7, 25))
    with_old = MetadataDelta(image).replay_all(old).apply()
    assert "Broker 2 does not support this feature." in refusal(with_old, FeatureUpdate(ELR, 1))
    up = FeatureUpdate("metadata.version", 26)
    assert "Broker 2 only supports versions 7-25" in refusal(with_old, up)
    assert "controller 3 has not registered" in refusal(image, FeatureUpdate(ELR, 1), voters=(3,))
    registration = RegisterControllerRecord(
        controller_id=3,
        features=[BrokerFeature(name=ELR, min_supported_version=0, max_supported_version=1)],
    )
    registered = MetadataDelta(image).replay_all([registration]).apply()
    assert after(registered, FeatureUpdate(ELR, 1), voters=(1, 3))[ELR] == 1
    lacking = MetadataDelta(image).replay_all([RegisterControllerRecord(controller_id=3)]).apply()
    assert "Controller 3 does not support" in refusal(lacking, FeatureUpdate(ELR, 1), voters=(3,))


def test_old_clusters_do_not_know_what_their_controllers_support() -> None:
    assert after(at(14), FeatureUpdate("metadata.version", 15), voters=(2, 3)) == {
        "metadata.version": 15
    }


@pytest.mark.parametrize(
    ("level", "now", "upgrade_type", "words"),
    [
        (2, 0, UpgradeType.UPGRADE, "Local controller 1 only supports versions 0-1"),
        (0, 1, UpgradeType.UPGRADE, "without setting the upgrade type"),
        (0, 1, SAFE, "Can't downgrade the version of this feature."),
    ],
)
def test_voters_stay_in_the_log(
    level: int, now: int, upgrade_type: UpgradeType, words: str
) -> None:
    update = FeatureUpdate("kraft.version", level, upgrade_type)
    image = MetadataImage("cluster", features={"metadata.version": 25})
    with pytest.raises(ApiError, match=words):
        check_kraft_version(image, BrokerConfig(), update, now, ())
    check_kraft_version(image, BrokerConfig(), FeatureUpdate("kraft.version", 1), 0, ())
