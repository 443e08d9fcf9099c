"""A node with the role of a controller registers with the active controller (KIP-919).

It does so when it starts, and again if the metadata has the registration of another process.
Usually that is an earlier life of this controller, which has ended. One that registers again, time
after time, has not: then two controllers run with one id, and this one, which came later, ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.controller.brokers import METADATA_VERSION, features_in_a_cluster
from ottla.controller.controllers import can_register
from ottla.metadata.image import ControllerImage
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
SETTLE_MS: Final = 500
"""An earlier life that has not ended registers again at once; after this time it would be known.

Every other time it waits for RETRY_MS. A registration may take long, see `_settled_ms`.
"""
PROOFS: Final = 2
"""How often the earlier life must register again. Once may be a request that was on its way."""


class ControllerRegistration:
    """The registration of this controller."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._incarnation_id = node.ports.random.uuid()
        self._is_waiting = False
        self._not_before_ms = 0.0
        self._previous: bytes | None = None
        """The incarnation that was registered before this one."""
        self._is_shown = False
        """True while the metadata has this incarnation."""
        self._asked_ms = 0.0
        self._settled_ms = 0.0
        """When this registration counts as undisputed."""
        self._has_registered = False
        self._returns = 0
        self._problem: str | None = None

    @property
    def is_settled(self) -> bool:
        """True if this controller is registered, and nobody else with its id disputes that."""
        image = self._node.image
        if METADATA_VERSION not in image.features:
            return False  # there is no metadata yet
        if not can_register(image):
            return True
        if not self._is_shown:
            return False
        return self._previous is None or self._node.monotonic_ms >= self._settled_ms

    def metadata_changed(self) -> None:
        """Register, if the metadata does not have this controller as it is now."""
        image = self._node.image
        known = image.controllers.get(self._node.node_id)
        if known is not None and known.incarnation_id == self._incarnation_id:
            if not self._is_shown:
                self._is_now_shown()
            return
        self._other_is_shown(known)
        if not self._is_waiting and can_register(image):
            self._is_waiting = True
            if self._node.monotonic_ms >= self._not_before_ms:
                self._register()
            else:
                self._node.timers.at(self._not_before_ms, self._register)

    def _is_now_shown(self) -> None:
        """Note that the metadata has this incarnation.

        If an earlier one lives, its registration may take as long as this one did.
        """
        now_ms = self._node.monotonic_ms
        pause_ms = RETRY_MS if self._returns else SETTLE_MS
        self._settled_ms = now_ms + pause_ms + 2 * (now_ms - self._asked_ms)
        self._is_shown = self._has_registered = True
        self._is_waiting = False

    def _other_is_shown(self, other: ControllerImage | None) -> None:
        """Note which other incarnation the metadata has. Leave if it is an earlier one that lives.

        Only a change from this incarnation to the other one is a sign of life.
        """
        incarnation_id = None if other is None else other.incarnation_id
        if not self._has_registered:
            self._previous = incarnation_id
        elif self._is_shown and other is not None and incarnation_id == self._previous:
            self._returns += 1
            if self._returns == PROOFS:
                self._leave(other)
        self._is_shown = False

    def _leave(self, other: ControllerImage) -> None:
        where = ", ".join(f"{each.host}:{each.port}" for each in other.endpoints)
        self._node.refuse(
            f"another controller with the id {self._node.node_id} is running at {where}:"
            " stop it, or give this one another node.id"
        )

    def _register(self) -> None:
        node = self._node
        self._asked_ms = node.monotonic_ms
        if self._has_registered:
            self._not_before_ms = self._asked_ms + RETRY_MS
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
        if not isinstance(result, TimeoutError) and result.error_message:
            self._report(result.error_message)
        self._node.timers.at(self._node.clock.monotonic_ms() + RETRY_MS, self._look_again)

    def _report(self, problem: str) -> None:
        """Tell the operator once why this controller is not registered."""
        if problem != self._problem:
            self._problem = problem
            self._node.report(f"the active controller does not register this one: {problem}")

    def _look_again(self) -> None:
        if not self._is_shown:
            self._is_waiting = False
            self.metadata_changed()
