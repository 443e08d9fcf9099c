"""The metrics of the log cleaner, named as Kafka's are when the usual JMX exporter renames them.

`kafka.log:type=LogCleanerManager,name=max-dirty-percent` becomes
`kafka_log_logcleanermanager_max_dirty_percent`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from ottla.broker.metrics.metric_lines import head, metric
from ottla.log.store.log_store import parent_of

if TYPE_CHECKING:
    from ottla.log.cleaner.log_cleaner import LogCleaner
    from ottla.log.store.log_store import LogStore

_CLEANER: Final = "kafka_log_logcleaner_"
_MANAGER: Final = "kafka_log_logcleanermanager_"


def cleaner_lines(cleaner: LogCleaner, store: LogStore, now_ms: float) -> Iterator[str]:
    """Yield the lines of the metrics. The work is bounded by the number of uncleanable logs."""
    stats = cleaner.last_stats
    recopied = 100 * stats.bytes_written / stats.bytes_read if stats and stats.bytes_read else 0
    used = 100 * stats.utilization if stats else 0
    for name, text, value in (
        ("cleaner_recopy_percent", "Bytes that the last clean has kept, in percent.", recopied),
        ("max_buffer_utilization_percent", "How full the last clean's map was.", used),
        ("max_clean_time_secs", "How long the last clean took.", stats.seconds if stats else 0),
        (
            "max_compaction_delay_secs",
            "How late the latest log is, by max.compaction.lag.ms.",
            cleaner.longest_delay_ms / 1000,
        ),
        ("deadthreadcount", "Always 0: helper processes that end are started again.", 0),
    ):
        yield from _gauge(_CLEANER + name, text, value)
    since_ms = now_ms - cleaner.last_check_ms
    dirty = int(100 * cleaner.dirtiest_ratio)
    yield from _gauge(_MANAGER + "max_dirty_percent", "The dirty ratio of the dirtiest log.", dirty)
    yield from _gauge(
        _MANAGER + "time_since_last_run_ms", "The time since the cleaner looked for work.", since_ms
    )
    yield from _of_directories(cleaner, store)
    name, text = "ottla_log_cleaner_cleans_total", "Cleans that were completed."
    yield from metric(name, "counter", text, cleaner.cleans)


def _of_directories(cleaner: LogCleaner, store: LogStore) -> Iterator[str]:
    counts = dict.fromkeys(store.directories, 0)
    sizes = dict.fromkeys(store.directories, 0)
    for partition in cleaner.uncleanable:
        log = store.get(partition)
        if log is not None:
            counts[parent_of(log)] += 1
            sizes[parent_of(log)] += log.size
    for name, text, values in (
        ("uncleanable_partitions_count", "Partitions that cannot be cleaned.", counts),
        ("uncleanable_bytes", "The size of partitions that cannot be cleaned.", sizes),
    ):
        yield from head(_MANAGER + name, "gauge", text)
        for directory, value in values.items():
            yield f'{_MANAGER}{name}{{logdirectory="{_escaped(directory)}"}} {value}'


def _gauge(name: str, text: str, value: float) -> Iterator[str]:
    yield from metric(name, "gauge", text, f"{value:.9g}")


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
