"""What must be true in the end, some time after everything was healed.

First the cluster is well: brokers are unfenced, ISRs are complete, clients are answered. Then, when
clients send nothing new, everything is acknowledged, copied and read, and replicas and images are
equal.
"""

from __future__ import annotations

from ottla.log.log import Log
from ottla.metadata.image import MetadataImage, PartitionImage, TopicImage
from ottla.sim.cluster import SimCluster
from ottla.sim.cluster_run.client_set import ClientSet
from ottla.sim.cluster_run.compacted_history import CompactedHistory
from ottla.sim.cluster_run.group_copier import GroupCopier
from ottla.sim.cluster_run.group_members import ClassicMember, ConsumerMember
from ottla.sim.cluster_run.history import History, batches_of
from ottla.sim.cluster_run.profile import ClusterProfile
from ottla.sim.cluster_run.tier_checks import TierChecks
from ottla.sim.cluster_run.topics import INTERNAL, is_loose, key_of
from ottla.sim.cluster_run.transaction_history import TransactionHistory
from ottla.sim.network.exchange import Violation


class FinalChecks:
    """Looks at brokers and clients after a run."""

    def __init__(
        self,
        cluster: SimCluster,
        profile: ClusterProfile,
        clients: ClientSet,
        history: History,
        transactions: TransactionHistory,
        tier: TierChecks | None,
    ) -> None:
        self._cluster = cluster
        self._profile = profile
        self._clients = clients
        self._history = history
        self._transactions = transactions
        self._tier = tier
        self._numbers = range(1, profile.brokers + profile.extra_brokers + 1)

    def unwell(self, acked: dict[str, int]) -> str:
        """Return what is not well yet, empty if everything is."""
        numbers = self._numbers
        for number in numbers:
            if not self._cluster.is_running(number):
                return f"broker {number} does not run"
            brokers = self._cluster.node(number).image.brokers
            active = [each for each in numbers if each in brokers and brokers[each].active]
            if len(active) < len(numbers):
                return f"broker {number} knows only {active} as active"
        topics = self._cluster.node(1).image.topics
        for name in {name for name, _ in self._clients.keys}:
            if name not in topics:
                return f"{name} is not there"
        for name, topic in topics.items():
            for image in topic.partitions:
                if image.leader < 0 or len(image.isr) < len(image.replicas):
                    return f"{name} has the partition {image}"
                if image.adding_replicas or image.removing_replicas:
                    return f"{name} is being reassigned: {image}"
        for producer in self._clients.producers:
            if producer.acked <= acked.get(producer.name, 0):
                return f"{producer.name} has sent nothing"
        return ""

    def unsteady(self, commits: dict[str, int]) -> str:
        """Return what is not well with the groups, empty if everything is."""
        for kind in (ClassicMember, ConsumerMember):
            members = [member for member in self._clients.members if isinstance(member, kind)]
            if not members:
                continue
            owned = [partition for member in members for partition in member.owned]
            if sorted(owned) != sorted(members[0].all_partitions()):
                return f"{kind.GROUP_ID} has assigned {sorted(owned)}"
            for member in members:
                if member.owned and member.commits <= commits[member.name]:
                    return f"{member.name} has committed nothing"
        return ""

    def unfinished(self) -> str:
        """Return what is not as it must be in the end, empty if everything is."""
        for producer in self._clients.all_producers:
            if not producer.is_done:
                return f"{producer.name} waits for acknowledgements"
        for number in self._numbers:
            if not self._cluster.is_running(number):
                return f"broker {number} does not run"
        images = [self._cluster.node(number).image for number in self._numbers]
        if any(_comparable(image) != _comparable(images[0]) for image in images):
            return "images differ"
        problem = self._uncopied() or self._unequal(images[0]) or self._unstable()
        problem = problem or self._unread()
        if not problem and self._tier is not None:
            problem = self._tier.unfinished(images[0])
        return problem

    def _uncopied(self) -> str:
        """Return what transactions have still to do."""
        for copier in self._clients.copiers:
            position = self._transactions.input(copier.input).position
            if position != self._history.log(copier.source).end:
                return f"{copier.name} has copied up to {position}"
        for key in self._clients.keys if self._clients.group_copiers else ():
            position = self._transactions.input((GroupCopier.group_id, *key)).position
            if position != self._history.log(key).end:
                return f"the group has copied {key} up to {position}"
        return self._transactions.unfinished()

    def _unstable(self) -> str:
        """Return which partition has an open transaction, as its leader says."""
        for number in self._numbers:
            for partition in self._cluster.node(number).topics:
                log = partition.log
                if log is not None and log.last_stable_offset < log.high_watermark:
                    return (
                        f"a transaction hangs: the last stable offset of {partition.name} on"
                        f" {number} is {log.last_stable_offset}, below {log.high_watermark}"
                    )
        return ""

    def _unequal(self, image: MetadataImage) -> str:
        """Return which partition's replicas do not end alike."""
        for name, topic in image.topics.items():
            if name.startswith(INTERNAL):
                continue
            for partition in topic.partitions:
                logs = self._replicas(topic, partition)
                ends = {log and (log.high_watermark, log.written_end) for log in logs}
                expected = self._history.log(key_of(name, topic.topic_id, partition.partition_id))
                if not is_loose(name) and ends != {(expected.end, expected.end)}:
                    return f"{name}-{partition.partition_id} ends at {ends}, not {expected.end}"
                if len(ends) > 1:
                    return f"{name}-{partition.partition_id} ends at {ends}"
        return ""

    def _replicas(self, topic: TopicImage, partition: PartitionImage) -> list[Log | None]:
        return [
            self._cluster.node(number)
            .topics.partition_by_id(topic.topic_id, partition.partition_id)
            .log
            for number in partition.replicas
        ]

    def _unread(self) -> str:
        for consumer in self._clients.consumers:
            if consumer.position != self._history.log(consumer.key).end:
                return f"{consumer.name} has read up to {consumer.position}"
        return ""

    def check_replicas(self, newest: MetadataImage) -> None:
        """Compare the replicas of topics whose records may be lost: they are equal now."""
        for name, topic in newest.topics.items():
            for partition in topic.partitions if is_loose(name) else ():
                contents = [
                    [data for _, data in batches_of(log, 0, log.written_end)]
                    for log in self._replicas(topic, partition)
                    if log is not None
                ]
                if any(content != contents[0] for content in contents):
                    raise Violation(f"replicas of {name}-{partition.partition_id} differ")

        for name, topic in newest.topics.items():
            for partition in topic.partitions if self._profile.compacts(name) else ():
                history = self._history.log((name, partition.partition_id))
                assert isinstance(history, CompactedHistory)
                for number, log in zip(
                    partition.replicas, self._replicas(topic, partition), strict=True
                ):
                    assert log is not None
                    remote = [] if self._tier is None else self._tier.batches_of(number, log)
                    history.check_whole(f"broker {number}", log, remote)
        if self._tier is not None:
            self._tier.check(newest)

    def check_acknowledged(self) -> None:
        for key, acked in self._history.acked.items():
            offsets = self._history.log(key).offsets
            for uid, offset in acked.items():
                if offsets.get(uid) != offset:
                    raise Violation(f"batch {uid} was acknowledged at {offset} of {key}")


def _comparable(image: MetadataImage) -> tuple[object, ...]:
    """Return what must be equal on all nodes."""
    return image.topics, image.configs, image.brokers, image.next_producer_id
