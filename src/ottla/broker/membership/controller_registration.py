"""A node with the role of a controller registers with the active controller (KIP-919).

It does so when it starts, and again if the metadata has the registration of an earlier process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.controller.brokers import features_in_a_cluster
from ottla.controller.controllers import can_register
from ottla.wire.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
    Feature,
    Listener,
)

if TYPE_CHECKING:
    from ottla.broker.node import Node

TIMEOUT_MS: Final = 10_000
RETRY_MS: Final = 1_000


class ControllerRegistration:
    """The registration of this controller."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._incarnation_id = node.ports.random.uuid()
        self._is_waiting = False

    def metadata_changed(self) -> None:
        """Register, if the metadata does not have this controller as it is now."""
        image = self._node.image
        known = image.controllers.get(self._node.node_id)
        is_registered = known is not None and known.incarnation_id == self._incarnation_id
        if not self._is_waiting and not is_registered and can_register(image):
            self._register()

    def _register(self) -> None:
        node = self._node
        self._is_waiting = True
        request = ControllerRegistrationRequest(
            controller_id=node.node_id,
            incarnation_id=self._incarnation_id,
            listeners=[
                Listener(name=each.listener, host=each.host, port=each.port)
                for each in node.controller_endpoints
            ],
            features=[
                Feature(name=name, min_supported_version=lowest, max_supported_version=highest)
                for name, lowest, highest in features_in_a_cluster()
            ],
        )
        node.channel.send(request, 0, ControllerRegistrationResponse, self._answered, TIMEOUT_MS)

    def _answered(self, result: ControllerRegistrationResponse | TimeoutError) -> None:
        """Wait for the metadata that shows the registration; after an error try again."""
        self._node.timers.at(self._node.clock.monotonic_ms() + RETRY_MS, self._look_again)

    def _look_again(self) -> None:
        self._is_waiting = False
        self.metadata_changed()
