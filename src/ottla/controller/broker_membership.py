"""Which brokers are in the cluster: the active controller's part of registration and heartbeats.

A broker registers, fenced, and gets an epoch: the offset of the record that registers it. Its
heartbeats say up to where it has the metadata; when it has its own registration, it is
unfenced. It is fenced again when it is silent for broker.session.timeout.ms, or when its process
has ended: its connections were closed, and its address refuses new ones. If that address neither
refuses nor answers, the broker gets a short grace to come back. A broker that shuts down hands its
partitions over first. When all others know that, it is fenced and may stop. It waits a little if
a partition could not be written to without it, because others are still catching up.

A controller that becomes active gives every broker a session, but asks their addresses at once:
one of them may have died together with the previous controller.

All of this happens only while this controller is active.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from ottla.config.broker import BrokerConfig
from ottla.config.listeners import Endpoint
from ottla.controller import broker_changes, brokers
from ottla.controller.alter_partition import check_broker
from ottla.controller.broker_heartbeats import BrokerHeartbeats, BrokerSession
from ottla.controller.broker_probe import BrokerProbe, ProbeResult
from ottla.controller.log_directories import lose_directories
from ottla.controller.quorum_controller import QuorumController
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import BrokerImage, FeatureRange, MetadataImage
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.steps import Steps
from ottla.model.value import Value
from ottla.ports import Clock
from ottla.replication.timers import Timer, Timers
from ottla.wire.message import Message

LONGEST_WAIT_FOR_OTHERS_MS: Final = 5_000
"""A broker that wants to stop waits at most this long for others to be in sync."""


class Registration(Value):
    """What a broker says when it registers."""

    broker_id: int
    cluster_id: str
    incarnation_id: bytes
    endpoints: Sequence[Endpoint]
    features: Sequence[FeatureRange]
    rack: str | None
    log_dirs: Sequence[bytes]
    """The ids of the directories that it can use."""
    previous_epoch: int | None = None
    """The epoch with which it was shut down cleanly, -1 if it was not; None if it did not say."""


class HeartbeatReply(Value):
    """The answer to a broker's heartbeat."""

    is_caught_up: bool
    is_fenced: bool
    should_shut_down: bool


class BrokerMembership:
    """The brokers of the cluster, as the active controller keeps them."""

    def __init__(
        self,
        controller: QuorumController,
        config: Callable[[], BrokerConfig],
        clock: Clock,
        timers: Timers,
        probe: BrokerProbe,
        first_records: Callable[[MetadataImage], list[Message]],
    ) -> None:
        self._controller = controller
        self._first_records = first_records
        self._config = config
        self._clock = clock
        self._timers = timers
        self._probe = probe
        self._timer: Timer | None = None
        membership = config().membership
        self._heartbeats = BrokerHeartbeats(
            membership.broker_session_timeout_ms, membership.broker_connection_loss_grace_ms
        )
        self._was_active = False
        controller.on_leadership.append(self._leadership_changed)

    def _leadership_changed(self) -> None:
        is_active = self._controller.is_active
        if is_active and not self._was_active:
            image = self._controller.latest_image
            self._heartbeats.begin(image.brokers.values(), self._clock.monotonic_ms())
            if brokers.METADATA_VERSION not in image.features:  # it is a new cluster
                self._controller.submit(self._first_records(image), _ignore)
            self._watch()
            for broker_id in self._unfenced():
                self._ask(broker_id)
        self._was_active = is_active

    # -- registration --------------------------------------------------------------------

    def register(self, registration: Registration, done: Callable[[int | ApiError], None]) -> None:
        """Register a broker; `done` gets its epoch once that is committed, or the error."""
        controller = self._controller
        image, broker_id = controller.latest_image, registration.broker_id
        self._check_active()
        if registration.cluster_id != image.cluster_id:
            raise ApiError(
                ErrorCode.INCONSISTENT_CLUSTER_ID, f"this is the cluster {image.cluster_id}"
            )
        brokers.check_room(image.brokers, broker_id)
        brokers.check_features(image, registration.features)
        known = image.brokers.get(broker_id)
        if (
            known is not None
            and known.incarnation_id != registration.incarnation_id
            and self._is_alive(known, registration)
        ):
            where = ", ".join(f"{each.host}:{each.port}" for each in known.endpoints)
            raise ApiError(
                ErrorCode.DUPLICATE_BROKER_REGISTRATION,
                f"Another broker is registered with that broker id, at {where}",
            )
        epochs: list[int] = []

        def decide(latest: MetadataImage) -> Steps[Sequence[Message]]:
            yield
            records: list[Message] = []
            other = latest.brokers.get(broker_id)
            if other is not None and other.incarnation_id != registration.incarnation_id:
                records += yield from broker_changes.fence(latest, self._config(), broker_id)
                if registration.previous_epoch not in (None, other.broker_epoch):
                    latest = yield from _after(latest, records)
                    records += yield from broker_changes.return_unclean(
                        latest, self._config(), broker_id
                    )
            epochs.append(controller.next_offset + len(records))
            return records + _record_of(registration, epochs[0])

        def committed(error: ApiError | None) -> None:
            if error is None:
                self._heartbeats.register(broker_id, self._clock.monotonic_ms())
            done(error or epochs[0])

        controller.decide(decide, committed)

    def _is_alive(self, known: BrokerImage, newcomer: Registration) -> bool:
        """Return True if the broker that is registered may run beside a newcomer of its id.

        A broker locks its log directories. So a newcomer with the same directories is the same
        broker after a restart, and the session that a new controller gives to every broker is
        void. The same holds if the registered one was fenced or about to stop. But if it has sent
        this controller a heartbeat, its session counts: the directories may be a copy.
        """
        broker_id = known.broker_id
        if not self._heartbeats.is_alive(broker_id, self._clock.monotonic_ms()):
            return False
        has_same_disk = not set(known.log_dirs).isdisjoint(newcomer.log_dirs)
        is_presumed_dead = has_same_disk or not known.active
        return self._heartbeats.is_heard_of(broker_id) or not is_presumed_dead

    # -- heartbeats ----------------------------------------------------------------------

    def heartbeat(
        self,
        broker_id: int,
        broker_epoch: int,
        metadata_offset: int,
        *,
        wants_fence: bool,
        wants_shutdown: bool,
        done: Callable[[HeartbeatReply | ApiError], None],
        failed_dirs: Sequence[bytes] = (),
    ) -> None:
        """Take a sign of life, and change what follows from it."""
        self._check_active()
        image = self._controller.latest_image
        check_broker(image, broker_id, broker_epoch)
        session = self._heartbeats.touch(broker_id, metadata_offset, self._clock.monotonic_ms())
        is_caught_up = metadata_offset >= broker_epoch
        if not wants_shutdown:
            session.shutdown_asked_ms = None
        elif session.shutdown_asked_ms is None:
            session.shutdown_asked_ms = self._clock.monotonic_ms()

        def decide(latest: MetadataImage) -> Steps[Sequence[Message]]:
            yield
            records: list[Message] = []
            is_stopping = False
            if broker_id in latest.brokers:
                records = yield from self._changes(
                    latest, session, broker_id, wants_fence, wants_shutdown, is_caught_up
                )
                is_stopping = wants_shutdown and (
                    bool(records) or not latest.brokers[broker_id].active
                )
                if failed_dirs and not set(failed_dirs).isdisjoint(
                    latest.brokers[broker_id].log_dirs
                ):
                    latest = yield from _after(latest, records)
                    records += yield from lose_directories(
                        latest, self._config(), broker_id, failed_dirs
                    )
            if is_stopping and session.shutdown_offset is None:
                session.shutdown_offset = self._controller.next_offset + len(records) - 1
            return records

        def committed(error: ApiError | None) -> None:
            if error is not None:
                done(error)
                return
            self._watch()
            done(self._reply(session, broker_id, is_caught_up))

        self._controller.decide(decide, committed)

    def _changes(
        self,
        image: MetadataImage,
        session: BrokerSession,
        broker_id: int,
        wants_fence: bool,
        wants_shutdown: bool,
        is_caught_up: bool,
    ) -> Steps[list[Message]]:
        config = self._config()
        broker = image.brokers[broker_id]
        has_ended = wants_shutdown and (yield from self._has_handed_over(session, broker_id))
        if wants_fence or has_ended:
            return (yield from broker_changes.fence(image, config, broker_id))
        if wants_shutdown:
            if broker.fenced or (yield from self._must_wait(image, session, broker_id)):
                return []
            return (yield from broker_changes.shut_down(image, config, broker_id))
        if broker.fenced and is_caught_up:
            return (yield from broker_changes.unfence(image, config, broker_id))
        return []

    def _must_wait(
        self, image: MetadataImage, session: BrokerSession, broker_id: int
    ) -> Steps[bool]:
        """Return True if a broker that wants to stop is needed until others have caught up.

        So brokers can be restarted one after the other without a pause for acks=all.
        """
        asked_ms = session.shutdown_asked_ms
        if asked_ms is None or image.brokers[broker_id].in_controlled_shutdown:
            return False
        is_due = self._clock.monotonic_ms() - asked_ms >= LONGEST_WAIT_FOR_OTHERS_MS
        if is_due:
            return False
        return not (yield from broker_changes.can_be_spared(image, self._config(), broker_id))

    def _reply(self, session: BrokerSession, broker_id: int, is_caught_up: bool) -> HeartbeatReply:
        image = self._controller.image
        broker = image.brokers.get(broker_id)
        is_fenced = broker is None or broker.fenced
        may_stop = is_fenced and session.shutdown_asked_ms is not None
        return HeartbeatReply(is_caught_up, is_fenced, may_stop)

    def _has_handed_over(self, session: BrokerSession, broker_id: int) -> Steps[bool]:
        """Return True if the others lead what a broker led, and all of them know it."""
        if session.shutdown_offset is None:
            return False
        if self._others(broker_id):
            leads_nothing = yield from broker_changes.leads_nothing(
                self._controller.image, broker_id
            )
            if not leads_nothing:
                return False
        return self._heartbeats.lowest_offset(self._others(broker_id)) >= session.shutdown_offset

    def _others(self, broker_id: int) -> list[int]:
        return [
            other.broker_id
            for other in self._controller.image.brokers.values()
            if other.active and other.broker_id != broker_id
        ]

    def connection_lost(self, broker_id: int) -> None:
        """Note that the connections of a broker were closed: its process may have died."""
        if self._controller.is_active:
            self._heartbeats.lose(broker_id, self._clock.monotonic_ms())
            self._watch()
            self._ask(broker_id)

    def _ask(self, broker_id: int) -> None:
        """Find out whether the process of a broker has ended; then fence it without grace."""
        broker = self._controller.latest_image.brokers.get(broker_id)
        if broker is None or broker.fenced:
            return
        asked_ms = self._clock.monotonic_ms()

        def answered(result: ProbeResult) -> None:
            if not self._controller.is_active:
                return
            if result is ProbeResult.REFUSED:
                self._heartbeats.end(broker_id, asked_ms)
            elif result is ProbeResult.LISTENS:
                self._heartbeats.find(broker_id)
            self._watch()

        self._probe.ask(broker, answered)

    # -- silence -------------------------------------------------------------------------

    def _watch(self) -> None:
        """Look again when the next broker could be silent for too long."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        next_ms = self._heartbeats.next_check_ms(self._unfenced())
        if next_ms is not None and self._controller.is_active:
            self._timer = self._timers.at(next_ms, self._fence_silent)

    def _unfenced(self) -> list[int]:
        image = self._controller.latest_image
        return [each.broker_id for each in image.brokers.values() if not each.fenced]

    def _fence_silent(self) -> None:
        self._timer = None
        if not self._controller.is_active:
            return
        silent = self._heartbeats.stale(self._unfenced(), self._clock.monotonic_ms())

        def decide(latest: MetadataImage) -> Steps[Sequence[Message]]:
            # Each change is decided on what the one before made of the cluster.
            records: list[Message] = []
            for broker_id in silent:
                # It may have been heard of since then: a decision waits for those before it.
                is_alive = self._heartbeats.is_alive(broker_id, self._clock.monotonic_ms())
                if broker_id in latest.brokers and not is_alive:
                    some = yield from broker_changes.fence(latest, self._config(), broker_id)
                    records += some
                    latest = yield from _after(latest, some)
                yield
            return records

        if silent:
            self._controller.decide(decide, lambda error: self._watch())
        else:
            self._watch()

    def _check_active(self) -> None:
        if not self._controller.is_active:
            raise ApiError(ErrorCode.NOT_CONTROLLER, "this is not the active controller")


def _ignore(error: ApiError | None) -> None:
    """Do nothing: if it failed, another controller decides."""


def _after(image: MetadataImage, records: Sequence[Message]) -> Steps[MetadataImage]:
    """Return the image that results from these records."""
    delta = MetadataDelta(image)
    yield from delta.replay_in_steps(records)
    return (yield from delta.apply_in_steps())


def _record_of(registration: Registration, epoch: int) -> list[Message]:
    return brokers.register_broker(
        broker_id=registration.broker_id,
        broker_epoch=epoch,
        incarnation_id=registration.incarnation_id,
        endpoints=registration.endpoints,
        rack=registration.rack,
        log_dirs=registration.log_dirs,
        features=registration.features,
        fenced=True,
    )
