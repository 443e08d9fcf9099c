"""The life of a broker in a cluster: it registers, catches up, serves, hands over and stops.

    starting       register with the active controller
    catching up    follow the metadata up to the own registration; heartbeats ask to be unfenced
    running        unfenced: a heartbeat every broker.heartbeat.interval.ms
    stopping       heartbeats ask to stop; others take over the partitions first
    stopped

If the controller does not know this broker any more (STALE_BROKER_EPOCH), it registers again.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Final

from ottla.broker.membership.lost_contact import LostContact
from ottla.broker.membership.recently_fenced import RecentlyFenced
from ottla.config.listeners import SECURITY_PROTOCOLS
from ottla.controller.brokers import features_in_a_cluster
from ottla.model.errors import ErrorCode
from ottla.replication.timers import Timer
from ottla.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from ottla.wire.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    Feature,
    Listener,
)

if TYPE_CHECKING:
    from ottla.broker.node import Node
    from ottla.metadata.delta import MetadataDelta

FAST_MS: Final = 20
"""How long to wait for the next heartbeat while the broker is not in the state it wants."""
SILENCE_MS: Final = 1000
"""A broker that stops does not wait longer for a controller that does not answer."""
LONGEST_SHUTDOWN_MS: Final = 30_000


class LifeState(Enum):
    STARTING = "starting"
    CATCHING_UP = "catching up"
    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"


class BrokerLifecycle:
    """Registration and heartbeats of this broker."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self.state = LifeState.STARTING
        self.epoch = -1
        """The epoch of the present registration; -1 before it."""
        self.incarnation_id = node.ports.random.uuid()
        self.on_ready: Callable[[], None] = _nothing
        self.on_stopped: Callable[[], None] = _nothing
        self.on_refused: Callable[[str], None] = _nothing_to_say
        self._timer: Timer | None = None
        self._is_waiting = False
        self._has_run = False
        self._is_ready = False
        self.is_known = False
        """True once this broker has been unfenced in its own metadata."""
        self._until_known: list[Callable[[], None]] = []
        self.awaited_brokers = 1
        """How many unfenced brokers there must be before this one is ready, itself included."""
        self._give_up_ms = 0.0
        self._other_since = -1, 0.0
        """The epoch of the controller that knows another broker with this id, and since when."""
        self._heard_ms = 0.0
        """When the controller last answered."""
        self.lost_contact = LostContact(node)
        self.recently_fenced = RecentlyFenced(node)

    @property
    def is_running(self) -> bool:
        """True while this broker is unfenced, as far as it knows."""
        return self.state is LifeState.RUNNING

    def when_known(self, action: Callable[[], None]) -> None:
        """Call `action` when this broker is unfenced in its own metadata for the first time."""
        self._until_known.append(action)

    def start(self) -> None:
        """Register as soon as the quorum has a leader."""
        membership = self._node.config.membership
        self._give_up_ms = (
            self._node.clock.monotonic_ms() + membership.initial_broker_registration_timeout_ms
        )
        self._after(0, self._register)

    def follow_controller(self) -> None:
        """Send a heartbeat at once to a new active controller, and on a new connection.

        The controller notices the end of this process by its closed connections. For that it
        must have one, and must know soon whether a lost one meant the end.
        """
        self._node.channel.on_lost = self._heartbeat_again
        self._node.controller.on_leadership.append(self._heartbeat_again)

    def _heartbeat_again(self) -> None:
        if self.state is LifeState.RUNNING and not self._is_waiting:
            self._heartbeat_soon()

    # -- registration --------------------------------------------------------------------

    def _register(self) -> None:
        node = self._node
        request = BrokerRegistrationRequest(
            broker_id=node.node_id,
            cluster_id=node.cluster_id,
            incarnation_id=self.incarnation_id,
            listeners=[
                Listener(
                    name=each.listener_name,
                    host=each.host,
                    port=each.port,
                    security_protocol=SECURITY_PROTOCOLS.index(each.security_protocol),
                )
                for each in node.advertised.values()
            ],
            features=[
                Feature(name=name, min_supported_version=lowest, max_supported_version=highest)
                for name, lowest, highest in features_in_a_cluster()
            ],
            rack=node.config.node.broker_rack,
            log_dirs=sorted(node.hosted_logs.online_directory_ids),
            previous_broker_epoch=node.hosted_logs.previous_epoch,
        )
        remaining_ms = max(1, self._give_up_ms - node.monotonic_ms)
        node.channel.send(request, 4, BrokerRegistrationResponse, self._registered, remaining_ms)

    def _registered(self, result: BrokerRegistrationResponse | TimeoutError) -> None:
        if self.state is LifeState.STOPPED:
            return
        if isinstance(result, TimeoutError):
            self.on_refused("no active controller has registered this broker in time")
            return
        code = result.error_code
        if code == ErrorCode.NONE:
            self.epoch = self._node.hosted_logs.broker_epoch = result.broker_epoch
            self.state = LifeState.CATCHING_UP
            self._heartbeat_soon()
        elif code == ErrorCode.DUPLICATE_BROKER_REGISTRATION:
            self._wait_for_other()
        elif self._node.monotonic_ms < self._give_up_ms and code in _RETRIED:
            self._after(FAST_MS * 5, self._register)
        elif code == ErrorCode.INCONSISTENT_CLUSTER_ID:
            self.on_refused(
                f"this broker belongs to the cluster {self._node.cluster_id}, and the controllers"
                " to another one: set their cluster.id, or use an empty directory"
            )
        else:
            self.on_refused(f"the controller refuses this broker: {_name(code)}")

    def _wait_for_other(self) -> None:
        """Try again until the session of an earlier process has ended; then its id is taken.

        A controller that has just taken over gives every broker a new session.
        """
        node = self._node
        session_ms = node.config.membership.broker_session_timeout_ms
        member = node.controller.member
        epoch = -1 if member is None else member.epoch
        if epoch != self._other_since[0]:
            self._other_since = epoch, node.monotonic_ms
        if node.monotonic_ms < self._other_since[1] + session_ms + 1000:
            self._after(FAST_MS * 5, self._register)
            return
        other = node.image.brokers.get(node.node_id)
        where = "" if other is None else ", ".join(f"{e.host}:{e.port}" for e in other.endpoints)
        self.on_refused(
            f"another broker with the id {node.node_id} is running"
            f"{f' at {where}' if where else ''}: stop it, or give this one another node.id"
        )

    # -- heartbeats ----------------------------------------------------------------------

    def metadata_changed(self, delta: MetadataDelta) -> None:
        """Tell the controller at once what it waits for, or that this broker is alive.

        It waits to hear that this broker has caught up, or knows who leads the partitions of one
        that is about to stop.
        """
        own = delta.brokers.changed.get(self._node.node_id)
        is_awaited = self.state is LifeState.CATCHING_UP or (
            self.state is LifeState.RUNNING
            and (delta.brokers.is_shutdown_begun or (own is not None and own.fenced))
        )
        if is_awaited and not self._is_waiting:
            self._heartbeat_soon()
        if self.state is LifeState.RUNNING and not self._is_ready:
            self._check_ready()

    def directories_failed(self) -> None:
        """Tell the controller at once, so that other brokers lead what was in the directories."""
        if self.epoch >= 0 and not self._is_waiting:
            self._heartbeat_soon()

    def shut_down(self, done: Callable[[], None]) -> None:
        """Let others take over, then `done` is called."""
        self.on_stopped = done
        is_member = self.state in (LifeState.CATCHING_UP, LifeState.RUNNING)
        if not is_member or not self._node.config.membership.controlled_shutdown_enable:
            self._stopped()
            return
        self.state = LifeState.STOPPING
        self._heard_ms = self._node.clock.monotonic_ms()
        self._watch_shutdown(self._heard_ms + LONGEST_SHUTDOWN_MS)
        if not self._is_waiting:
            self._heartbeat_soon()

    def _watch_shutdown(self, limit_ms: float) -> None:
        """Stop without having handed over if nobody is there to take over, or it takes too long."""
        now_ms = self._node.clock.monotonic_ms()
        if now_ms >= limit_ms or now_ms - self._heard_ms >= SILENCE_MS:
            self._stopped()
        elif self.state is LifeState.STOPPING:
            self._node.timers.at(now_ms + SILENCE_MS / 4, lambda: self._watch_shutdown(limit_ms))

    def _stopped(self) -> None:
        if self.state is not LifeState.STOPPED:
            self.state = LifeState.STOPPED
            if self._timer is not None:
                self._timer.cancel()
            self.on_stopped()

    def _heartbeat_soon(self) -> None:
        self._after(0, self._heartbeat)

    def _heartbeat(self) -> None:
        node = self._node
        if self._is_waiting or self.state is LifeState.STOPPED:
            return
        self._is_waiting = True
        request = BrokerHeartbeatRequest(
            broker_id=node.node_id,
            broker_epoch=self.epoch,
            current_metadata_offset=node.image.end_offset - 1,  # the last record that it has
            want_fence=False,
            want_shut_down=self.state is LifeState.STOPPING,
            offline_log_dirs=node.hosted_logs.failed_directory_ids,
        )
        interval_ms = node.config.membership.broker_session_timeout_ms
        node.channel.send(request, 1, BrokerHeartbeatResponse, self._answered, interval_ms)

    def _answered(self, result: BrokerHeartbeatResponse | TimeoutError) -> None:
        self._is_waiting = False
        if self.state is LifeState.STOPPED:
            return
        if isinstance(result, TimeoutError):
            self.lost_contact.begin()
            self._after(FAST_MS, self._heartbeat)
            return
        self.lost_contact.end()
        self._heard_ms = self._node.monotonic_ms
        if result.error_code == ErrorCode.STALE_BROKER_EPOCH and self.state is LifeState.STOPPING:
            self._stopped()
        elif result.error_code == ErrorCode.STALE_BROKER_EPOCH:
            self.state = LifeState.STARTING
            self.start()
        elif result.error_code:
            self._after(FAST_MS, self._heartbeat)
        else:
            self._follow(result)

    def _follow(self, reply: BrokerHeartbeatResponse) -> None:
        interval_ms = self._node.config.membership.broker_heartbeat_interval_ms
        if self.state is LifeState.STOPPING:
            if reply.should_shut_down:
                self._stopped()
            else:
                self._after(FAST_MS, self._heartbeat)
        elif reply.is_fenced:
            self.state = LifeState.CATCHING_UP
            self._after(FAST_MS, self._heartbeat)
        else:
            if not self._has_run:
                self._has_run = True
                self._node.hosted_logs.set_strays_aside()
                self._node.directory_assignments.check_all()
            self.state = LifeState.RUNNING
            self._after(interval_ms, self._heartbeat)
            self._check_ready()

    def _check_ready(self) -> None:
        """Tell once that clients can come: this broker and those awaited are in its metadata."""
        brokers = self._node.image.brokers
        own = brokers.get(self._node.node_id)
        if own is None or own.fenced:
            return
        self.is_known = True
        waiting, self._until_known = self._until_known, []
        for action in waiting:
            action()
        if self._is_ready:
            return
        if sum(not broker.fenced for broker in brokers.values()) >= self.awaited_brokers:
            self._is_ready = True
            self.on_ready()

    def _after(self, delay_ms: float, action: Callable[[], None]) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._node.timers.at(self._node.clock.monotonic_ms() + delay_ms, action)


_RETRIED: Final = frozenset(
    {ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.UNKNOWN_SERVER_ERROR}
)


def _name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error code {code}"


def _nothing() -> None:
    """Do nothing: nobody waits for it."""


def _nothing_to_say(message: str) -> None:
    """Do nothing: nobody reads it."""
