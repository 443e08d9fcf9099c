"""Broker settings of storage: data directories, checkpoints, and periodic work on logs.

Defaults of topic settings, such as log.segment.bytes, are declared in config/topic.py. Only their
coarser synonyms (hours, minutes) are here.
"""

from __future__ import annotations

from typing import cast

from ottla.config.component import Component, setting
from ottla.config.definition import MAX_LONG, AtLeast, ConfigError, Values


def _log_dirs(values: Values) -> tuple[str, ...]:
    own = values["log.dirs"]
    dirs = cast(tuple[str, ...], values["log.dir"] if own is None else own)
    if not dirs or "" in dirs:
        raise ConfigError("log.dirs must name at least one directory")
    if len(set(dirs)) != len(dirs):
        raise ConfigError(f"log.dirs names a directory twice: {','.join(dirs)}")
    return dirs


class StorageConfig(Component):
    """Where logs are, and how often the broker works on them."""

    log_dir: tuple[str, ...] = setting(
        "log.dir",
        "list",
        default=("/tmp/kafka-logs",),
        doc="The data directories, if log.dirs is not set.",
        importance="high",
    )
    log_dirs: tuple[str, ...] = setting(
        "log.dirs",
        "list",
        default=None,
        doc=(
            "The data directories. A new partition goes to the directory with the fewest"
            " partitions."
        ),
        importance="high",
        resolve=_log_dirs,
    )
    log_retention_minutes: int | None = setting(
        "log.retention.minutes",
        "int",
        default=None,
        doc="The default of retention.ms in minutes, if log.retention.ms is not set.",
        importance="high",
    )
    log_retention_hours: int = setting(
        "log.retention.hours",
        "int",
        default=168,
        doc=(
            "The default of retention.ms in hours, if log.retention.ms and log.retention.minutes"
            " are not set."
        ),
        importance="high",
    )
    log_roll_hours: int = setting(
        "log.roll.hours",
        "int",
        default=168,
        validator=AtLeast(1),
        doc="The default of segment.ms in hours, if log.roll.ms is not set.",
        importance="high",
    )
    log_roll_jitter_hours: int = setting(
        "log.roll.jitter.hours",
        "int",
        default=0,
        validator=AtLeast(0),
        doc="The default of segment.jitter.ms in hours, if log.roll.jitter.ms is not set.",
        importance="high",
    )
    log_flush_scheduler_interval_ms: int = setting(
        "log.flush.scheduler.interval.ms",
        "long",
        default=MAX_LONG,
        doc=(
            "How often the broker checks logs for flush.ms. Also the default of flush.ms, if"
            " log.flush.interval.ms is not set."
        ),
        importance="high",
    )
    log_flush_offset_checkpoint_interval_ms: int = setting(
        "log.flush.offset.checkpoint.interval.ms",
        "int",
        default=60000,
        validator=AtLeast(0),
        doc="How often recovery points are written to their checkpoint file.",
        importance="high",
    )
    log_flush_start_offset_checkpoint_interval_ms: int = setting(
        "log.flush.start.offset.checkpoint.interval.ms",
        "int",
        default=60000,
        validator=AtLeast(0),
        doc="How often log start offsets are written to their checkpoint file.",
        importance="high",
    )
    replica_high_watermark_checkpoint_interval_ms: int = setting(
        "replica.high.watermark.checkpoint.interval.ms",
        "long",
        default=5000,
        doc="How often high watermarks are written to their checkpoint file.",
        importance="high",
    )
    log_retention_check_interval_ms: int = setting(
        "log.retention.check.interval.ms",
        "long",
        default=300000,
        validator=AtLeast(1),
        doc="How often the broker checks logs for segments to delete.",
    )
    log_initial_task_delay_ms: int = setting(
        "log.initial.task.delay.ms",
        "long",
        default=30000,
        validator=AtLeast(0),
        doc="The delay between the start of the broker and the first periodic work on logs.",
        importance="low",
        internal=True,
    )
