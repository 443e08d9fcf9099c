"""Broker settings of the log cleaner. Those of a topic's compaction are in config/topic.py."""

from __future__ import annotations

from ottla.config.component import Component, setting
from ottla.config.definition import CLUSTER_WIDE, MAX_DOUBLE, AtLeast


class CleanerConfig(Component):
    """How much the log cleaner may use, and how often it looks for work."""

    log_cleaner_enable: bool = setting(
        "log.cleaner.enable",
        "boolean",
        default=True,
        doc=(
            "Compact the topics with cleanup.policy=compact. Without it they grow without a limit,"
            " internal topics too."
        ),
        importance="medium",
    )
    log_cleaner_threads: int = setting(
        "log.cleaner.threads",
        "int",
        default=1,
        validator=AtLeast(0),
        doc="How many logs are cleaned at the same time, each by a helper process.",
        importance="medium",
        update=CLUSTER_WIDE,
    )
    log_cleaner_backoff_ms: int = setting(
        "log.cleaner.backoff.ms",
        "long",
        default=15_000,
        validator=AtLeast(0),
        doc="How often the log cleaner looks for logs to clean.",
        importance="medium",
        update=CLUSTER_WIDE,
    )
    log_cleaner_dedupe_buffer_size: int = setting(
        "log.cleaner.dedupe.buffer.size",
        "long",
        default=134_217_728,
        doc=(
            "The memory for the last offset of each key, of all cleaner threads together. A key"
            " takes 24 bytes, and 208 bytes without numpy. If there are more keys, a log is cleaned"
            " in several rounds."
        ),
        importance="medium",
        update=CLUSTER_WIDE,
    )
    log_cleaner_io_buffer_load_factor: float = setting(
        "log.cleaner.io.buffer.load.factor",
        "double",
        default=0.9,
        doc="How full log.cleaner.dedupe.buffer.size may get, as a fraction.",
        importance="medium",
        update=CLUSTER_WIDE,
    )
    log_cleaner_io_buffer_size: int = setting(
        "log.cleaner.io.buffer.size",
        "int",
        default=524_288,
        validator=AtLeast(0),
        doc="How many bytes of logs are read at a time, by all cleaner threads together.",
        importance="medium",
        update=CLUSTER_WIDE,
    )
    log_cleaner_io_max_bytes_per_second: float = setting(
        "log.cleaner.io.max.bytes.per.second",
        "double",
        default=MAX_DOUBLE,
        doc="How much the log cleaner reads and writes in a second, on average.",
        importance="medium",
        update=CLUSTER_WIDE,
    )
