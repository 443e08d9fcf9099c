"""The metrics of the remote tier, named as Kafka's are when the usual JMX exporter renames them.

`kafka.server:type=BrokerTopicMetrics,name=RemoteCopyBytesPerSec` becomes
`kafka_server_brokertopicmetrics_remotecopybytes_total` (KIP-405, KIP-963). They are sums over the
tiered partitions of the broker. Each leader updates its own figures when it looks for something
to do, so no partition is visited when the metrics are read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.broker.metrics.metric_lines import metric
from ottla.log.log import Log
from ottla.tiered.metadata_records import SegmentState
from ottla.tiered.remote_segments import RemoteSegments

if TYPE_CHECKING:
    from ottla.broker.remote_tier.remote_tier import RemoteTier

_TOPICS: Final = "kafka_server_brokertopicmetrics_"


class PartitionFigures(NamedTuple):
    """What the leader of a tiered partition knows of it now."""

    copy_lag_bytes: int = 0
    copy_lag_segments: int = 0
    delete_lag_bytes: int = 0
    delete_lag_segments: int = 0
    metadata_count: int = 0
    size_bytes: int = 0


NO_FIGURES: Final = PartitionFigures()


def figures_of(log: Log, segments: RemoteSegments) -> PartitionFigures:
    """Return the figures of a partition that this broker leads."""
    waiting = [
        segment.size
        for segment in log.segments.from_offset(log.highest_remote_offset + 1)
        if segment.base_offset > log.highest_remote_offset and segment is not log.active
    ]
    doomed = [
        segment.size
        for segment_id, segment in segments.segments.items()
        if segment.state == SegmentState.DELETE_STARTED
        or segment.end_offset < log.log_start_offset
        or segment_id in segments.replaced
    ]
    return PartitionFigures(
        sum(waiting), len(waiting), sum(doomed), len(doomed), len(segments.segments), segments.size
    )


class TierMetrics:
    """The counters and sums of a broker."""

    def __init__(self) -> None:
        self.copies = self.copied_bytes = self.copy_errors = 0
        self.fetches = self.fetched_bytes = self.fetch_errors = 0
        self.deletions = self.deletion_errors = 0
        self.rebuilds = self.rebuild_errors = 0
        self.cleans = self.clean_errors = 0
        self.cleaned_bytes_read = self.cleaned_bytes_written = 0
        self.store_read_bytes = self.store_errors = 0
        self.partitions = NO_FIGURES
        """The sums over the partitions that this broker leads."""

    def replace(self, before: PartitionFigures, after: PartitionFigures) -> None:
        """Take note that the figures of a partition have changed."""
        if before != after:
            sums = zip(self.partitions, before, after, strict=True)
            self.partitions = PartitionFigures(*(total - old + new for total, old, new in sums))


def tier_lines(tier: RemoteTier) -> Iterator[str]:
    """Yield the lines of the metrics. The work is the same however many partitions there are."""
    metrics, sums = tier.metrics, tier.metrics.partitions
    for name, text, count in (
        ("remotecopyrequests", "Copies of segments that were begun.", metrics.copies),
        ("remotecopybytes", "Bytes of segments that were copied.", metrics.copied_bytes),
        ("remotecopyerrors", "Copies of segments that failed.", metrics.copy_errors),
        ("remotefetchrequests", "Fetches that the tier answered.", metrics.fetches),
        ("remotefetchbytes", "Bytes of these answers.", metrics.fetched_bytes),
        ("remotefetcherrors", "Fetches that failed because of the store.", metrics.fetch_errors),
        ("remotedeleterequests", "Deletions of segments that were begun.", metrics.deletions),
        ("remotedeleteerrors", "Deletions of segments that failed.", metrics.deletion_errors),
        (
            "buildremotelogauxstaterequests",
            "Followers that began to take their state from the tier.",
            metrics.rebuilds,
        ),
        (
            "buildremotelogauxstateerrors",
            "Followers that could not take their state from the tier.",
            metrics.rebuild_errors,
        ),
    ):
        yield from metric(f"{_TOPICS}{name}_total", "counter", text, count)
    for name, text, value in (
        ("remotecopylagbytes", "Bytes of closed segments to copy.", sums.copy_lag_bytes),
        ("remotecopylagsegments", "Closed segments to copy.", sums.copy_lag_segments),
        ("remotedeletelagbytes", "Bytes of remote segments to delete.", sums.delete_lag_bytes),
        ("remotedeletelagsegments", "Remote segments to delete.", sums.delete_lag_segments),
        ("remotelogmetadatacount", "Remote segments in the metadata.", sums.metadata_count),
        ("remotelogsizebytes", "Bytes of readable remote segments.", sums.size_bytes),
    ):
        yield from metric(_TOPICS + name, "gauge", text, value)
    waiting = "ottla_remote_reads_waiting"
    yield from metric(waiting, "gauge", "Reads of the store that wait.", tier.cache.waiting)
    for name, text, count in (
        ("store_read_bytes", "Bytes read from the store.", metrics.store_read_bytes),
        ("store_read_errors", "Reads for consumers that failed.", metrics.store_errors),
        ("cleans", "Cleans of remote parts that were completed.", metrics.cleans),
        ("clean_errors", "Cleans of remote parts that failed.", metrics.clean_errors),
        ("clean_read_bytes", "Bytes that these cleans read.", metrics.cleaned_bytes_read),
        ("clean_written_bytes", "Bytes that they wrote.", metrics.cleaned_bytes_written),
    ):
        yield from metric(f"ottla_remote_{name}_total", "counter", text, count)
