"""What is checked of topics in the remote tier.

After every wake-up: a broker has all records on its disk that are not known to be copied.

The tier of a topic is off only if its remote part is to be deleted. A topic that stays in the tier
begins with its first record.

When a run has ended, and everything is well: the store has nothing of topics that are deleted or
not in the tier any more, and no broker is busy with it. All closed segments are copied, of
compacted topics those that are clean. The metadata has no uploads and deletions that are under way.
The remote part of each replica goes up to its local part, its objects are whole, and its batches
are those that were committed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ottla.broker.remote_tier.remote_tier import RemoteTier
from ottla.broker.remote_tier.tiered_partition import TieredPartition
from ottla.log.log import Log
from ottla.metadata.image import MetadataImage
from ottla.records.batch import Batch, scan
from ottla.sim.cluster import SimCluster
from ottla.sim.cluster_run.history import History
from ottla.sim.cluster_run.topics import COLD, is_tiered, key_of
from ottla.sim.network.exchange import Violation
from ottla.sim.object_store import SharedObjects
from ottla.tiered.layout import LOG, MANIFEST, parse_topic_directory
from ottla.tiered.metadata_records import RemotePartition, SegmentMetadata, SegmentState
from ottla.tiered.remote_cleanable import remote_parts
from ottla.tiered.segment_files import next_to_copy
from ottla.tiered.segment_upload import key_of as object_key


class TierChecks:
    """Looks at the tiers of all brokers, and at the store."""

    def __init__(self, cluster: SimCluster, store: SharedObjects, history: History) -> None:
        self._cluster = cluster
        self._store = store
        self._history = history
        self._copied: dict[RemotePartition, int] = {}
        """The highest offset that any broker knew to be copied."""
        self.turned_off: set[bytes] = set()
        """Topics whose tier somebody has turned off, or tried to."""

    def look(self, number: int) -> None:
        """Check a broker after its wake-up."""
        node = self._cluster.machine(number).node
        if node is None or node.tier is None:
            return
        _check_settings(node.image)
        for tiered, log in self._tiered(number):
            segments, copied = tiered.segments, self._copied.get(tiered.remote, -1)
            if segments is not None:
                highest = segments.highest_offset(log.leader_epochs, log.written_end)
                copied = self._copied[tiered.remote] = max(copied, highest)
            if log.local_log_start_offset > max(copied + 1, log.log_start_offset):
                raise Violation(
                    f"{tiered.name} of broker {number} begins at {log.local_log_start_offset};"
                    f" {copied} is copied"
                )
            topic = tiered.partition.topic
            if (
                log.log_start_offset
                and topic.name.startswith(COLD)
                and topic.topic_id not in self.turned_off
            ):
                raise Violation(
                    f"{tiered.name} of broker {number} begins at {log.log_start_offset}, and"
                    " nobody has deleted its first records"
                )

    def _tier(self, number: int) -> RemoteTier:
        tier = self._cluster.node(number).tier
        assert tier is not None
        return tier

    def _tiered(self, number: int) -> Iterator[tuple[TieredPartition, Log]]:
        """Iterate over the tiered replicas of a broker."""
        for tiered in self._tier(number).partitions.values():
            if tiered.log is not None:
                yield tiered, tiered.log

    def is_copied(self, topic_id: bytes) -> bool:
        """Return True if the store has anything of a topic."""
        return any(_topic_of(key) == topic_id for key in self._store.objects)

    def unfinished(self, image: MetadataImage) -> str:
        """Return what is still to be copied or deleted, empty if nothing is."""
        orphans = [key for key in self._store.objects if not self._is_needed(image, key)]
        if orphans:
            return f"the store has {len(orphans)} objects that nobody needs: {orphans[0]}"
        for number in image.brokers:
            for tiered, log in self._tiered(number):
                segments = tiered.segments
                if segments is None:
                    return f"broker {number} does not know the remote segments of {tiered.name}"
                busy = [
                    each
                    for each in segments.segments.values()
                    if each.state != SegmentState.COPY_FINISHED
                    or each.segment_id in segments.replaced
                ]
                if busy:
                    return f"remote segments of {tiered.name} on {number} are not final: {busy}"
                leads = tiered.partition.leader is not None
                if leads and next_to_copy(log, log.highest_remote_offset) is not None:
                    return f"{tiered.name} is copied up to {log.highest_remote_offset}"
            if self._tier(number).cleaning is not None:
                return f"broker {number} cleans a remote part"
            if self._tier(number).tasks_running:
                return f"tasks of the remote tier of broker {number} have not ended"
        return ""

    def _is_needed(self, image: MetadataImage, key: str) -> bool:
        """Return True if an object is of a topic that is in the tier."""
        topic = image.topics_by_id.get(_topic_of(key))
        return topic is not None and is_tiered(image, topic.name)

    def check(self, image: MetadataImage) -> None:
        """Raise Violation if the remote part of a replica is not what was committed."""
        for number in image.brokers:
            for tiered, log in self._tiered(number):
                topic = tiered.partition.topic
                key = key_of(topic.name, topic.topic_id, tiered.partition.index)
                history = self._history.log(key)
                for batch, data in self._batches(number, tiered, log):
                    history.compare(f"the tier of broker {number}", batch, data)

    def batches_of(self, number: int, log: Log) -> list[tuple[Batch, bytes]]:
        """Return the batches of the remote part of a replica."""
        for tiered, each in self._tiered(number):
            if each is log:
                return list(self._batches(number, tiered, log))
        return []

    def _batches(
        self, number: int, tiered: TieredPartition, log: Log
    ) -> Iterator[tuple[Batch, bytes]]:
        segments = tiered.segments
        assert segments is not None
        parts = remote_parts(log, segments)
        end = parts[-1].end_offset if parts else log.log_start_offset
        if end < log.local_log_start_offset:
            raise Violation(
                f"{tiered.name} of broker {number} is remote up to {end}, and local from"
                f" {log.local_log_start_offset}"
            )
        for part in parts:
            data = self._content(part.segment)
            for batch in scan(data, 0, len(data)):
                if part.first_offset <= batch.base_offset < part.end_offset:
                    yield batch, data[batch.position : batch.end]

    def _content(self, segment: SegmentMetadata) -> bytes:
        objects = self._store.objects
        data = objects.get(object_key(segment, LOG))
        if (
            data is None
            or len(data) != segment.size
            or object_key(segment, MANIFEST) not in objects
        ):
            raise Violation(f"the objects of {segment} are not whole")
        return data

    def counts(self) -> Counter[str]:
        """Return how often the brokers that run now have done what they do with the store."""
        found: Counter[str] = Counter()
        for number in self._cluster.node(1).image.brokers:
            metrics = self._tier(number).metrics
            found["remote copies"] += metrics.copies
            found["remote reads"] += metrics.fetches
            found["remote cleans"] += metrics.cleans
            found["remote rebuilds"] += metrics.rebuilds
            found["store errors"] += metrics.copy_errors + metrics.store_errors
        return found


def _topic_of(key: str) -> bytes:
    """Return the id of the topic of an object."""
    directory = parse_topic_directory(key.partition("/")[0])
    assert directory is not None, key
    return directory.topic_id


def _check_settings(image: MetadataImage) -> None:
    """Check that a tier is off only if its remote part is to be deleted."""
    for name in image.topics:
        if name.startswith(COLD) and not is_tiered(image, name):
            config = image.topic_config(name)
            if config.get("remote.log.delete.on.disable") != "true":
                raise Violation(f"the tier of {name} is off, and its remote part stays: {config}")
