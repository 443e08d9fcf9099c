"""A replica of a partition on this broker: its log, its role, and its watchers.

A replica leads its partition or follows the leader; each role has code of its own
(`partition_leader`, `partition_follower`). The metadata image decides which one it is:

    (new)    -> leader, follower    by `take_role` with the partition's image
    leader   -> leader              same leader, a new leader epoch or ISR
    leader   -> follower            another broker leads: requests that wait get an error
    follower -> leader              this broker was elected
    any      -> removed             the topic is deleted (`remove`), or other brokers have the
                                    replicas now (`move_away`)

`take_role`, `remove` and `move_away` are the only transitions. While the log or its directory is
offline `log` is None, whatever the role. A removed replica that nobody needs any more lets go of
its role (`let_go`), so that no cycle of references keeps its memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ottla.log.log import Log
from ottla.metadata.image import PartitionImage
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.ids import INTERNAL_TOPICS, NO_LEADER_EPOCH
from ottla.replication.partition_follower import PartitionFollower
from ottla.replication.partition_leader import PartitionLeader
from ottla.replication.replica_counts import (
    FOLLOWER,
    LEADER,
    NOT_COUNTED,
    UNDER_REPLICATED_LEADER,
    ReplicaCounts,
    Share,
)

if TYPE_CHECKING:
    from ottla.replication.isr_changes import IsrChanges


class Watcher(Protocol):
    """Is told when a partition has changed."""

    def partition_changed(self) -> None: ...


class QueuedWrite(Protocol):
    """Something with batches queued in a log, which is written when the wake-up ends."""

    @property
    def partition(self) -> Partition: ...

    def write(self) -> None:
        """Write what is queued; raise OSError if that fails."""
        ...

    def refuse_unwritten(self, code: ErrorCode, message: str) -> None:
        """Take note that it could not be written."""
        ...


class Partition:
    """One replica. Exactly one of `leader` and `follower` is set until it is removed."""

    __slots__ = (
        "_counted",
        "follower",
        "index",
        "leader",
        "leader_epoch",
        "leader_id",
        "log",
        "partition_epoch",
        "removed",
        "topic",
        "watchers",
    )

    def __init__(self, topic: Topic, index: int) -> None:
        self.topic = topic
        self.index = index
        self.log: Log | None = None
        self.leader: PartitionLeader | None = None
        self.follower: PartitionFollower | None = None
        self.leader_epoch = -1
        self.leader_id = -1
        self.partition_epoch = -1
        self.removed = False
        self.watchers: dict[Watcher, bool] = {}
        """Who is told of changes. True for followers, which read past the high watermark."""
        self._counted = NOT_COUNTED

    def __repr__(self) -> str:
        return f"Partition({self.name})"

    @property
    def name(self) -> str:
        return f"{self.topic.name}-{self.index}"

    # -- transitions ---------------------------------------------------------------------

    def take_role(self, image: PartitionImage, broker_id: int) -> None:
        """Lead or follow, as the image says, and tell the watchers."""
        assert broker_id in image.replicas, f"{self.name} has no replica on broker {broker_id}"
        assert image.leader_epoch >= self.leader_epoch, f"{self.name}: the leader epoch goes back"
        self.leader_epoch = image.leader_epoch
        self.leader_id = image.leader
        self.partition_epoch = image.partition_epoch
        if image.leader == broker_id:
            self._lead(image, broker_id)
        else:
            self._follow()
        assert (self.leader is None) != (self.follower is None)
        self._count()
        self.notify()

    def _lead(self, image: PartitionImage, broker_id: int) -> None:
        if self.leader is None:
            self.leader = PartitionLeader(self, broker_id)
            self.follower = None
        self.leader.lead(image)

    def _follow(self) -> None:
        leader, self.leader = self.leader, None
        if self.follower is None:
            self.follower = PartitionFollower(self)
        if leader is not None:
            leader.resign()

    def remove(self) -> None:
        """End this replica: requests that wait get an error, and watchers are told."""
        self.removed = True
        if self.leader is not None:
            self.leader.resign()
        self._count()
        self.notify()

    def move_away(self, image: PartitionImage) -> None:
        """End this replica: its partition has others now, as the image says."""
        self.leader_epoch = image.leader_epoch
        self.leader_id = image.leader
        self.partition_epoch = image.partition_epoch
        self._follow()  # first, so that writes which wait for followers are refused
        self.removed = True
        self._count()
        self.notify()

    def let_go(self) -> None:
        """Forget the role of a removed replica. What it has appended must be written before."""
        assert self.removed
        self.leader = None
        self.follower = None

    def _count(self) -> None:
        """Keep the counts of the broker in step with this replica."""
        share = self._share()
        self.topic.counts.replace(self._counted, share)
        self._counted = share

    def _share(self) -> Share:
        if self.removed:
            return NOT_COUNTED
        if self.leader is None:
            return FOLLOWER
        return UNDER_REPLICATED_LEADER if self.leader.is_under_replicated else LEADER

    # -- what requests ask ---------------------------------------------------------------

    def online_log(self) -> Log:
        """Return the log, or raise KAFKA_STORAGE_ERROR while it or its directory is offline."""
        if self.log is None:
            raise self._offline()
        return self.log

    def _offline(self) -> ApiError:
        return ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"the log of {self.name} is offline")

    def as_leader(self) -> PartitionLeader:
        """Return the leader's role, or raise NOT_LEADER_OR_FOLLOWER."""
        if self.leader is None:
            raise self.not_leader()
        return self.leader

    def not_leader(self) -> ApiError:
        """Return the error for requests that only the leader serves.

        It is KAFKA_STORAGE_ERROR while the log is offline, whoever leads, as in Kafka.
        """
        if self.log is None:
            return self._offline()
        where = "no broker" if self.leader_id < 0 else f"broker {self.leader_id}"
        return ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{where} leads {self.name}")

    def check_leader_epoch(self, current_leader_epoch: int) -> None:
        """Raise an error if the client knows an older or a newer leader epoch than this broker."""
        if current_leader_epoch in (-1, self.leader_epoch):
            return
        if current_leader_epoch < self.leader_epoch:
            raise ApiError(
                ErrorCode.FENCED_LEADER_EPOCH,
                f"leader epoch {current_leader_epoch} is older than {self.leader_epoch}",
            )
        raise ApiError(
            ErrorCode.UNKNOWN_LEADER_EPOCH,
            f"leader epoch {current_leader_epoch} is newer than {self.leader_epoch}",
        )

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """Return the largest epoch up to the given one and where it ended; (-1, -1) if unknown.

        The leader's own epoch begins at the end of its log as long as it has written nothing. An
        epoch before all that are known ended where the first one began, as in Kafka.
        """
        log = self.online_log()
        latest = log.leader_epochs.latest_epoch
        if self.leader is None or epoch == NO_LEADER_EPOCH or epoch > self.leader_epoch:
            return log.end_offset_for_epoch(epoch)
        if epoch == self.leader_epoch or latest < 0:
            return epoch, log.written_end
        if epoch > latest:
            return latest, log.written_end
        return log.end_offset_for_epoch(epoch)

    def epoch_for_offset(self, offset: int) -> int:
        """Return the epoch in which an offset was written, or will be at the end; -1 if unknown."""
        log = self.online_log()
        if self.leader is not None and offset >= log.written_end:
            return self.leader_epoch
        return log.leader_epochs.epoch_for_offset(offset)

    def notify(self) -> None:
        """Tell all watchers that the partition has changed. They may stop watching meanwhile."""
        for watcher in tuple(self.watchers):
            watcher.partition_changed()

    def notify_followers(self) -> None:
        """Tell the followers among the watchers that there is more to read for them."""
        for watcher, is_follower in tuple(self.watchers.items()):
            if is_follower:
                watcher.partition_changed()


class Topic:
    """A topic with the partitions hosted here, by index."""

    __slots__ = ("counts", "isr_changes", "key", "name", "partitions", "topic_id", "writable")

    def __init__(self, name: str, topic_id: bytes) -> None:
        self.counts = ReplicaCounts()
        """Where its replicas are counted: the broker's counts once the topic is hosted."""
        self.isr_changes: IsrChanges | None = None
        """Where leaders propose other ISRs; None on a broker that is a cluster of its own."""
        self.name = name
        self.key = name.encode()
        self.topic_id = topic_id
        self.partitions: dict[int, Partition] = {}
        self.writable = {} if name in INTERNAL_TOPICS else self.partitions
        """The partitions that clients may write to: none of an internal topic."""
