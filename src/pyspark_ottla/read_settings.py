"""How ranges are read; travels to executors with the tasks."""

from __future__ import annotations

from dataclasses import dataclass

from ottla.client.settings import ClientSettings

FETCH_MAX_BYTES = 16 << 20
FETCH_MAX_WAIT_MS = 500


@dataclass(frozen=True)
class ReadSettings:
    """`columns` in the order wanted, and Kafka's consumer settings of the same names."""

    client: ClientSettings
    columns: tuple[str, ...]
    read_committed: bool = False
    fail_on_data_loss: bool = True
    fetch_max_bytes: int = FETCH_MAX_BYTES
    max_partition_fetch_bytes: int = FETCH_MAX_BYTES
    fetch_max_wait_ms: int = FETCH_MAX_WAIT_MS
    check_crcs: bool = True
