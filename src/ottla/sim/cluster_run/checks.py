"""What must hold at every moment of a run of a cluster, looked at after each wake-up.

Quorum        one leader an epoch; a vote is not given to two candidates of an epoch; what is
              committed is in the logs of a majority, and the same records at the same offsets
Metadata      a node's image holds committed records only; a leader is elected from the ISR
Partitions    one leader an epoch; the high watermark never goes back and never passes the end
              of a member of the ISR; logs are identical below it; a new leader has everything
              that is committed; so has a replica that joins the ISR
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from ottla.broker.node import Node
from ottla.log.log import Log
from ottla.metadata.image import MetadataImage, PartitionImage
from ottla.metadata.records import NO_LEADER
from ottla.raft.quorum import Quorum
from ottla.raft.quorum_state_file import FILE_NAME, decode
from ottla.replication.partition import Partition
from ottla.replication.partition_leader import PartitionLeader
from ottla.sim.cluster import SimCluster
from ottla.sim.cluster_run.history import History, LogHistory, PartitionKey
from ottla.sim.cluster_run.topics import is_loose, key_of
from ottla.sim.network.exchange import Violation


class Checks:
    """Looks at nodes, remembers what it saw, and raises Violation."""

    def __init__(
        self,
        cluster: SimCluster,
        count: int,
        history: History,
        note: Callable[[str], None],
        *,
        is_dynamic: bool = False,
    ) -> None:
        """Look at controllers 1 to `count`. If `is_dynamic`, not all of them vote."""
        self._cluster = cluster
        self._numbers = range(1, count + 1)
        self._is_dynamic = is_dynamic
        self._voters: dict[int, Collection[int]] = {}
        """The voters, as each broker knew them after its last wake-up."""
        self._history = history
        self._note = note
        self._metadata = LogHistory("the metadata", has_uids=False)
        self._metadata_ends: dict[int, int] = {}
        self._metadata_seen: dict[int, int] = {}
        self._quorums: dict[int, Quorum] = {}
        """The state machine of each broker, as of its last wake-up."""
        self._told_metadata = 0
        """Up to here metadata was committed for a broker whose process has ended."""
        self._controllers: dict[int, int] = {}
        self._votes: dict[tuple[int, int], int] = {}
        self._vote_files: dict[int, bytes] = {}
        self._leaders: dict[tuple[PartitionKey, int], int] = {}
        self._ends: dict[tuple[int, PartitionKey], int] = {}
        self._seen: dict[tuple[int, PartitionKey], int] = {}
        self._hosted: dict[int, dict[PartitionKey, Log | None]] = {}
        self._led: set[tuple[int, PartitionKey]] = set()
        """Who led what after its last wake-up."""
        self._last_committed: dict[PartitionKey, int] = {}
        """The highest high watermark of a leader when its process ended."""
        self.image = MetadataImage()
        """The newest image that any node had."""

    # -- when ----------------------------------------------------------------------------

    def look(self, number: int) -> None:
        """Check a node after its wake-up."""
        machine = self._cluster.machine(number)
        if machine.node is not None:
            with machine.disk.faults.looked_at():
                self._look(number, machine.node)

    def _look(self, number: int, node: Node) -> None:
        self._check_votes(number)
        self._check_quorum(number, node)
        self._check_image(number, node)
        hosted: dict[PartitionKey, Log | None] = {}
        for partition in node.topics:
            if partition.removed:
                continue
            key = key_of(partition.topic.name, partition.topic.topic_id, partition.index)
            hosted[key] = partition.log
            if partition.log is not None:
                self._check_partition(number, key, partition)
        self._forget_removed(number, hosted)

    def _forget_removed(self, number: int, hosted: dict[PartitionKey, Log | None]) -> None:
        """Forget the replicas that a broker does not have any more."""
        before, self._hosted[number] = self._hosted.get(number, {}), hosted
        for key in before.keys() - hosted.keys():
            self._ends.pop((number, key), None)
            self._seen.pop((number, key), None)
            self._led.discard((number, key))

    def ended(self, number: int) -> None:
        """Forget what only a process remembers: the next one reads it from the disk."""
        self._metadata_seen.pop(number, None)
        quorum = self._quorums.pop(number, None)
        if quorum is not None:
            # The last wake-up may have committed, and written a snapshot of it.
            self._told_metadata = max(self._told_metadata, quorum.high_watermark or 0)
        for partition, log in self._hosted.pop(number, {}).items():
            if log is not None and not is_loose(partition[0]):
                # The last wake-up may have told others of records before the process ended.
                self._ends[number, partition] = log.written_end
                if (number, partition) in self._led:
                    told = self._last_committed.get(partition, 0)
                    self._last_committed[partition] = max(told, log.high_watermark)
        for key in [key for key in self._seen if key[0] == number]:
            del self._seen[key]
            self._led.discard(key)

    # -- the quorum ----------------------------------------------------------------------

    def _check_votes(self, number: int) -> None:
        """Compare `quorum-state` with what it said of the same epoch."""
        content = self._cluster.machine(number).disk.peek(f"/data/__cluster_metadata-0/{FILE_NAME}")
        if content is None or content == self._vote_files.get(number):
            return
        self._vote_files[number] = content
        election = decode(content)
        epoch, voted = election.epoch, election.voted
        if voted is not None and self._votes.setdefault((number, epoch), voted.id) != voted.id:
            first = self._votes[number, epoch]
            raise Violation(f"broker {number} votes for {voted.id} and {first} in epoch {epoch}")

    def _check_quorum(self, number: int, node: Node) -> None:
        member = node.controller.member
        assert member is not None
        quorum = member.driver.quorum
        log = member.log.log
        self._quorums[number] = quorum
        if number in self._numbers:
            self._metadata_ends[number] = log.written_end
        if quorum.is_leader:
            epoch = quorum.election.epoch
            if epoch not in self._controllers:
                self._note(f"broker {number} leads the quorum in epoch {epoch}")
            if self._controllers.setdefault(epoch, number) != number:
                other = self._controllers[epoch]
                raise Violation(f"brokers {number} and {other} lead the quorum in epoch {epoch}")
        self._check_committed(number, quorum, log)
        self._voters[number] = quorum.voters.ids

    def _check_committed(self, number: int, quorum: Quorum, log: Log) -> None:
        committed = quorum.high_watermark
        seen = self._metadata_seen.get(number, 0)
        if committed is None or committed <= seen:
            return
        self._metadata_seen[number] = committed
        before = self._metadata.end
        if committed > before and log.log_start_offset <= before:
            self._check_majority(number, quorum, committed)
        if log.log_start_offset <= before:
            self._metadata.take(f"broker {number}", log, seen, committed)

    def _check_majority(self, number: int, quorum: Quorum, committed: int) -> None:
        """Check that a majority has what is committed: of the voters now or before the wake-up."""
        sets: list[Collection[int]] = [self._numbers]
        if self._is_dynamic:
            if not quorum.is_leader:
                return
            sets = [quorum.voters.ids, self._voters.get(number, ())]
        holders = {each for each, end in self._metadata_ends.items() if end >= committed}
        if not any(len(holders.intersection(each)) > len(each) // 2 for each in sets):
            raise Violation(
                f"metadata below {committed} is committed and only on {sorted(holders)} of {sets}"
            )

    # -- metadata ------------------------------------------------------------------------

    def _check_image(self, number: int, node: Node) -> None:
        image = node.image
        member = node.controller.member
        assert member is not None
        own = member.driver.quorum.high_watermark or 0
        committed = max(own, self._metadata.end, self._told_metadata)
        if image.end_offset > committed:
            raise Violation(
                f"broker {number} published metadata up to {image.end_offset};"
                f" {committed} is committed"
            )
        if image.end_offset <= self.image.end_offset:
            return
        before, self.image = self.image, image
        if image.topics is before.topics:
            return
        for name, topic in image.topics.items():
            old = before.topics.get(name)
            if old is topic or old is None or old.topic_id != topic.topic_id:
                continue
            for was, now in zip(old.partitions, topic.partitions, strict=False):
                if was is not now and was != now:
                    self._check_change(key_of(name, topic.topic_id, now.partition_id), was, now)

    def _check_change(self, key: PartitionKey, was: PartitionImage, now: PartitionImage) -> None:
        self._note(
            f"{key[0]}-{key[1]}: leader {now.leader} in epoch {now.leader_epoch}, ISR {now.isr}"
        )
        if now.leader >= 0 and now.leader not in now.isr:
            raise Violation(f"{key}: the leader {now.leader} is not in the ISR {now.isr}")
        if now.leader not in (was.leader, NO_LEADER):
            broker = self.image.brokers.get(now.leader)
            if broker is None or broker.fenced:
                raise Violation(f"{key}: the leader {now.leader} is fenced when it is elected")
        if now.leader_epoch < was.leader_epoch or now.partition_epoch <= was.partition_epoch:
            raise Violation(f"{key}: epochs go back from {was} to {now}")
        if is_loose(key[0]):
            return
        end = self._history.log(key).end
        for replica in now.isr:
            if replica not in was.isr and self._ends.get((replica, key), 0) < end:
                raise Violation(
                    f"{key}: {replica} joins the ISR and ends at {self._ends.get((replica, key))};"
                    f" {end} is committed"
                )

    # -- partitions ----------------------------------------------------------------------

    def _check_partition(self, number: int, key: PartitionKey, partition: Partition) -> None:
        log = partition.log
        assert log is not None
        if is_loose(key[0]):
            if partition.leader is not None:
                self._check_one_leader(number, partition, key)
            return
        self._ends[number, key] = log.written_end
        high_watermark = log.high_watermark
        history = self._history.log(key)
        seen = self._seen.get((number, key))
        if self._hosted.get(number, {}).get(key, log) is not log:
            seen = None
        if seen is None:
            seen = 0
        if high_watermark > log.written_end:
            raise Violation(
                f"{partition.name}: the high watermark of broker {number} is {high_watermark},"
                f" and its log ends at {log.written_end}"
            )
        if high_watermark < seen:
            raise Violation(
                f"{partition.name}: the high watermark of broker {number} goes back"
                f" from {seen} to {high_watermark}"
            )
        if partition.leader is not None:
            self._check_leader(number, partition, history, key)
        if high_watermark > seen:
            if high_watermark > history.end:
                self._check_in_sync(number, partition, key, high_watermark)
            history.take(f"broker {number}", log, seen, high_watermark)
        self._seen[number, key] = high_watermark
        if partition.leader is not None:
            self._led.add((number, key))
        else:
            self._led.discard((number, key))

    def _check_leader(
        self, number: int, partition: Partition, history: LogHistory, key: PartitionKey
    ) -> None:
        assert partition.log is not None
        assert partition.leader is not None
        epoch = partition.leader_epoch
        newest = self._newest(partition)
        is_replaced = newest is not None and newest.leader_epoch > epoch
        if not is_replaced:  # the controller refuses proposals of an old epoch
            self._check_proposed(number, partition, partition.leader, key)
        if self._check_one_leader(number, partition, key) and not is_replaced:
            if partition.log.written_end < history.end:
                raise Violation(
                    f"broker {number} leads {partition.name} in epoch {epoch} and ends at"
                    f" {partition.log.written_end}; {history.end} is committed"
                )
            history.take(
                f"broker {number}", partition.log, self._seen.get((number, key), 0), history.end
            )

    def _check_one_leader(self, number: int, partition: Partition, key: PartitionKey) -> bool:
        """Check that nobody else leads in the same epoch; return True if the epoch is new."""
        epoch = partition.leader_epoch
        is_new = (key, epoch) not in self._leaders
        leader = self._leaders.setdefault((key, epoch), number)
        if leader != number:
            raise Violation(f"brokers {number} and {leader} lead {partition.name} in {epoch}")
        return is_new

    def _check_proposed(
        self, number: int, partition: Partition, leader: PartitionLeader, key: PartitionKey
    ) -> None:
        """Check that whoever is proposed for the ISR has everything that is committed."""
        assert partition.log is not None
        for replica in leader.proposed_isr or ():
            end = self._ends.get((replica, key), 0)
            if replica in leader.isr or not self._is_replica(partition, replica):
                continue
            if self._has_begun_anew(replica, leader.followers[replica].broker_epoch):
                continue
            if end < partition.log.high_watermark:
                raise Violation(
                    f"{partition.name}: broker {number} proposes {replica} for the ISR, which ends"
                    f" at {end}; {partition.log.high_watermark} is committed"
                )

    def _has_begun_anew(self, number: int, broker_epoch: int) -> bool:
        """Return True if a broker is not in the life any more in which it sent its last fetch.

        The fetch may arrive after that, also if the new life began on an empty disk. The controller
        knows the life that is proposed, and refuses it, or ends it when the new one registers.
        """
        node = self._cluster.machine(number).node
        if node is None or node.lifecycle is None:
            return False
        return node.lifecycle.epoch != broker_epoch

    def _check_in_sync(
        self, number: int, partition: Partition, key: PartitionKey, high_watermark: int
    ) -> None:
        """Check that everybody in the ISR has what the leader calls committed."""
        leader = partition.leader
        newest = self._newest(partition)
        # It may have led for a part of the wake-up, if nobody else is in sync.
        is_alone = newest is not None and newest.isr == (number,)
        is_told = high_watermark <= self._last_committed.get(key, 0)
        if leader is None and (number, key) not in self._led and not is_alone and not is_told:
            raise Violation(f"{partition.name}: follower {number} is the first at {high_watermark}")
        is_current = newest is not None and newest.leader_epoch == partition.leader_epoch
        if newest is not None and (is_current or leader is None):
            isr = newest.isr  # also of one that committed and then resigned in this wake-up
        else:
            isr = () if leader is None else leader.isr
        for replica in isr:
            end = self._ends.get((replica, key), 0)
            if end < high_watermark and self._is_replica(partition, replica):
                raise Violation(
                    f"{partition.name}: broker {number} has the high watermark {high_watermark};"
                    f" {replica} of the ISR {isr} ends at {end}"
                )

    def _newest(self, partition: Partition) -> PartitionImage | None:
        """Return how the newest metadata has a partition, None if it is deleted."""
        topic = self.image.topics_by_id.get(partition.topic.topic_id)
        return None if topic is None else topic.partitions[partition.index]

    def _is_replica(self, partition: Partition, replica: int) -> bool:
        """Return False if a broker has lost its replica, and the leader may not know it yet."""
        newest = self._newest(partition)
        return newest is not None and replica in newest.replicas
