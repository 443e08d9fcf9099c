"""A member by kafka-python, in the classic protocol."""

from __future__ import annotations

import time
from collections.abc import Callable

from kafka import ConsumerRebalanceListener, KafkaConsumer, OffsetAndMetadata, TopicPartition
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.errors import KafkaError

from tests.harness.member.progress import Progress
from tests.harness.member.report import Key, Reporter
from tests.harness.member.spec import Spec

# Longer than a join takes, if the machine is not too busy: see `_stay_in_the_join`.
POLL_MS = 2000
ASSIGNORS = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "cooperative-sticky": CooperativeStickyAssignor,
}


def run(spec: Spec, reporter: Reporter, stop: Callable[[], bool]) -> None:
    Member(spec, reporter).run(stop)


class Member(ConsumerRebalanceListener):  # type: ignore[misc]  # untyped
    def __init__(self, spec: Spec, reporter: Reporter) -> None:
        self._spec = spec
        self._reporter = reporter
        self._progress = Progress()
        self._consumer = KafkaConsumer(
            bootstrap_servers=spec.bootstrap_servers,
            group_id=spec.group,
            group_instance_id=spec.instance_id,
            client_id=spec.client_id,
            auto_offset_reset="earliest",
            enable_auto_commit=not spec.commits,
            auto_commit_interval_ms=100,
            session_timeout_ms=spec.session_timeout_ms,
            heartbeat_interval_ms=spec.heartbeat_interval_ms,
            max_poll_interval_ms=spec.max_poll_interval_ms,
            max_poll_records=spec.batch,
            fetch_max_wait_ms=50,
            metadata_max_age_ms=1000 if spec.pattern else 300_000,
            reconnect_backoff_max_ms=200,
            partition_assignment_strategy=[ASSIGNORS[spec.assignor or "range"]],
        )

    def run(self, stop: Callable[[], bool]) -> None:
        if self._spec.pattern is not None:
            self._consumer.subscribe(pattern=self._spec.pattern, listener=self)
        else:
            self._consumer.subscribe(topics=list(self._spec.topics), listener=self)
        while not stop():
            self._turn()
        self._consumer.close(autocommit=not self._spec.commits)
        self._reporter.closed()

    def _turn(self) -> None:
        self._stay_in_the_join()
        try:
            polled = self._consumer.poll(timeout_ms=POLL_MS)
        except KafkaError as error:
            self._reporter.failed("poll", error)
            return
        offsets = {
            (key.topic, key.partition): [record.offset for record in records]
            for key, records in polled.items()
            if records
        }
        if not offsets:
            return
        time.sleep(self._spec.work_ms / 1000)
        self._reporter.got(offsets)
        self._progress.processed(offsets)
        self._commit(self._progress.to_commit())

    def _stay_in_the_join(self) -> None:
        """See that a join which outlasted its poll is taken up again by the next one.

        kafka-python 3.0 takes its assignment inside of a poll, and only if it knows by then
        that it has to join. A leader that joins because it saw new partitions no longer knows
        once it has made the assignments. If its poll was over before they were answered, it
        drops what it got, sends no heartbeats, and polls as somebody outside for ever.
        """
        coordinator = self._consumer._coordinator
        if coordinator.rebalance_in_progress():
            coordinator.request_rejoin()

    def _commit(self, offsets: dict[Key, int]) -> None:
        if not offsets or not self._spec.commits:
            return
        wanted = {
            TopicPartition(*key): OffsetAndMetadata(offset, "", -1)
            for key, offset in offsets.items()
        }
        try:
            self._consumer.commit(wanted)
        except KafkaError as error:
            self._reporter.failed("commit", error)
        else:
            self._progress.committed(offsets)
            self._reporter.committed(offsets)

    def on_partitions_assigned(self, assigned: list[TopicPartition]) -> None:
        generation = self._consumer._coordinator._generation.generation_id
        self._reporter.assigned(_keys(assigned), generation)

    def on_partitions_revoked(self, revoked: list[TopicPartition]) -> None:
        # Nothing is left to commit: rebalances happen inside of poll, commits before the next.
        self._progress.forget(_keys(revoked))
        self._reporter.revoked(_keys(revoked), lost=False)

    def on_partitions_lost(self, lost: list[TopicPartition]) -> None:
        # kafka-python 3.0 would claim them when it joins again: the leader would then wait for
        # it to give them up, and as it has none to give up, nobody would ever get them.
        for assignor in self._consumer._coordinator._assignors.values():
            if isinstance(assignor, CooperativeStickyAssignor):
                assignor.member_assignment = None
        self._progress.forget(_keys(lost))
        self._reporter.revoked(_keys(lost), lost=True)


def _keys(partitions: list[TopicPartition]) -> list[Key]:
    return [(partition.topic, partition.partition) for partition in partitions]
