"""Registrations of controllers (KIP-919): their addresses, and the features they support."""

from __future__ import annotations

from ottla.config.listeners import SECURITY_PROTOCOLS
from ottla.controller.brokers import METADATA_VERSION, check_room
from ottla.metadata.image import MetadataImage
from ottla.metadata.records import BrokerEndpoint, BrokerFeature, RegisterControllerRecord
from ottla.model.errors import ApiError, ErrorCode
from ottla.wire.message import Message
from ottla.wire.messages.controller_registration import ControllerRegistrationRequest

FIRST_METADATA_LEVEL = 15  # Kafka 3.7-IV0


def can_register(image: MetadataImage) -> bool:
    """Return True if the metadata may have registrations of controllers."""
    return image.features.get(METADATA_VERSION, 0) >= FIRST_METADATA_LEVEL


def register_controller(
    image: MetadataImage, request: ControllerRegistrationRequest
) -> list[Message]:
    """Return the record of a controller.

    Raise UNSUPPORTED_VERSION if the metadata is too old, INVALID_REQUEST if a listener has an
    unknown security protocol, POLICY_VIOLATION if there are too many controllers.
    """
    check_room(image.controllers, request.controller_id)
    if not can_register(image):
        raise ApiError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"{METADATA_VERSION} is too low for registrations of controllers",
        )
    if any(not 0 <= each.security_protocol < len(SECURITY_PROTOCOLS) for each in request.listeners):
        raise ApiError(ErrorCode.INVALID_REQUEST, "an unknown security protocol")
    return [
        RegisterControllerRecord(
            controller_id=request.controller_id,
            incarnation_id=request.incarnation_id,
            zk_migration_ready=request.zk_migration_ready,
            end_points=[
                BrokerEndpoint(
                    name=each.name,
                    host=each.host,
                    port=each.port,
                    security_protocol=each.security_protocol,
                )
                for each in request.listeners
            ],
            features=[
                BrokerFeature(
                    name=each.name,
                    min_supported_version=each.min_supported_version,
                    max_supported_version=each.max_supported_version,
                )
                for each in request.features
            ],
        )
    ]
