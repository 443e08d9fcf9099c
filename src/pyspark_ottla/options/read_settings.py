"""The settings of a read on executors. They are sent with the tasks."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ottla.client.settings import ClientSettings
from pyspark_ottla.options.source_options import SourceOptions

FETCH_MAX_BYTES = 16 << 20
FETCH_MAX_WAIT_MS = 500


@dataclass(frozen=True)
class ReadSettings:
    """The columns to read, in order, and Kafka's consumer settings of the same names."""

    client: ClientSettings
    columns: tuple[str, ...]
    read_committed: bool = False
    fail_on_data_loss: bool = True
    fetch_max_bytes: int = FETCH_MAX_BYTES
    max_partition_fetch_bytes: int = FETCH_MAX_BYTES
    fetch_max_wait_ms: int = FETCH_MAX_WAIT_MS
    check_crcs: bool = True


def read_settings(source: SourceOptions) -> ReadSettings:
    """Return the settings that the options ask for, with defaults for what is not set."""
    kafka = source.kafka
    settings = ReadSettings(
        client=kafka.client,
        columns=source.columns,
        read_committed=kafka.read_committed,
        fail_on_data_loss=source.fail_on_data_loss,
        check_crcs=kafka.check_crcs,
    )
    if kafka.fetch_max_bytes is not None:
        settings = replace(settings, fetch_max_bytes=kafka.fetch_max_bytes)
    if kafka.max_partition_fetch_bytes is not None:
        settings = replace(settings, max_partition_fetch_bytes=kafka.max_partition_fetch_bytes)
    if kafka.fetch_max_wait_ms is not None:
        settings = replace(settings, fetch_max_wait_ms=kafka.fetch_max_wait_ms)
    return settings
