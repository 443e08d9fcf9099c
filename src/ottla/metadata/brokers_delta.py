"""Changes of registered brokers and controllers."""

from __future__ import annotations

from collections.abc import Iterable

from ottla.config.listeners import SECURITY_PROTOCOLS, Endpoint
from ottla.metadata.image import BrokerImage, ControllerImage, FeatureRange, MetadataImage
from ottla.metadata.records import (
    BrokerEndpoint,
    BrokerFeature,
    BrokerRegistrationChangeRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    UnregisterBrokerRecord,
)
from ottla.metadata.serde import MetadataError


class BrokersDelta:
    """Brokers that registered, changed or left, and controllers that registered."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self.changed: dict[int, BrokerImage | None] = {}
        """Brokers by id, as they are after the delta; None for those that left."""
        self._controllers: dict[int, ControllerImage] = {}

    def register(self, record: RegisterBrokerRecord) -> None:
        self.changed[record.broker_id] = BrokerImage(
            broker_id=record.broker_id,
            broker_epoch=record.broker_epoch,
            incarnation_id=record.incarnation_id,
            endpoints=_endpoints(record.end_points),
            rack=record.rack,
            fenced=record.fenced,
            in_controlled_shutdown=record.in_controlled_shutdown,
            log_dirs=tuple(record.log_dirs),
            features=_features(record.features),
        )

    def change(self, record: BrokerRegistrationChangeRecord) -> None:
        broker = self._current(record.broker_id)
        if broker is None or broker.broker_epoch != record.broker_epoch:
            raise MetadataError(
                f"broker {record.broker_id} is not registered with epoch {record.broker_epoch}"
            )
        self.changed[record.broker_id] = broker._replace(
            fenced=broker.fenced if record.fenced == 0 else record.fenced > 0,
            in_controlled_shutdown=broker.in_controlled_shutdown
            or record.in_controlled_shutdown > 0,
            log_dirs=tuple(record.log_dirs) or broker.log_dirs,
        )

    def unregister(self, record: UnregisterBrokerRecord) -> None:
        if self._current(record.broker_id) is None:
            raise MetadataError(f"broker {record.broker_id} is not registered")
        self.changed[record.broker_id] = None

    def register_controller(self, record: RegisterControllerRecord) -> None:
        self._controllers[record.controller_id] = ControllerImage(
            controller_id=record.controller_id,
            incarnation_id=record.incarnation_id,
            endpoints=_endpoints(record.end_points),
            zk_migration_ready=record.zk_migration_ready,
            features=_features(record.features),
        )

    def _current(self, broker_id: int) -> BrokerImage | None:
        if broker_id in self.changed:
            return self.changed[broker_id]
        return self._image.brokers.get(broker_id)

    @property
    def is_shutdown_begun(self) -> bool:
        """True if a broker has begun a controlled shutdown."""
        return any(
            broker is not None and broker.in_controlled_shutdown for broker in self.changed.values()
        )

    def brokers(self) -> dict[int, BrokerImage]:
        """Return all brokers after the delta."""
        merged = {**self._image.brokers, **self.changed}
        return {broker_id: broker for broker_id, broker in merged.items() if broker is not None}

    def controllers(self) -> dict[int, ControllerImage]:
        """Return all controllers after the delta."""
        return {**self._image.controllers, **self._controllers}


def _endpoints(endpoints: Iterable[BrokerEndpoint]) -> tuple[Endpoint, ...]:
    return tuple(
        Endpoint(e.name, e.host, e.port, _protocol(e.security_protocol)) for e in endpoints
    )


def _protocol(number: int) -> str:
    if not 0 <= number < len(SECURITY_PROTOCOLS):
        raise MetadataError(f"unknown security protocol {number}")
    return SECURITY_PROTOCOLS[number]


def _features(features: Iterable[BrokerFeature]) -> tuple[FeatureRange, ...]:
    return tuple(
        FeatureRange(f.name, f.min_supported_version, f.max_supported_version) for f in features
    )
