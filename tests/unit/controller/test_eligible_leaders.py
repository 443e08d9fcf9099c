"""One min.insync.replicas for the whole cluster."""

from __future__ import annotations

import pytest

from ottla.config.broker import BrokerConfig
from ottla.controller.eligible_leaders import unused_min_insync_replicas
from ottla.metadata.image import MetadataImage
from ottla.model.config_resources import ResourceType

ELR = {"eligible.leader.replicas.version": 1}


@pytest.mark.parametrize(
    ("own", "features", "is_told"),
    [("1", ELR, True), ("2", ELR, False), (None, ELR, False), ("1", {}, False)],
)
def test_a_broker_tells_of_a_value_that_does_not_count(
    own: str | None, features: dict[str, int], is_told: bool
) -> None:
    cluster_wide: dict[tuple[int, str], dict[str, str]] = {
        (ResourceType.BROKER, ""): {"min.insync.replicas": "2"}
    }
    image = MetadataImage("cluster", features=features, configs=cluster_wide)
    config = BrokerConfig({} if own is None else {"min.insync.replicas": own}, {})
    message = unused_min_insync_replicas(image, config)
    assert (message is not None) == is_told
    assert message is None or message.startswith("min.insync.replicas=1 is not used: the cluster")
