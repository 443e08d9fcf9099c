"""How rows are written: the settings of the sink's producer, as plain data.

Defaults are Kafka's, but for the sizes of batches and of the buffer: a sink has all rows of a
task to send at once, so larger batches cost nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from ottla.client.producer.producer import ACKS_ALL
from ottla.client.settings import ClientSettings

DEFAULT_BATCH_BYTES = 512 * 1024
DEFAULT_BUFFER_BYTES = 64 * 1024 * 1024
DEFAULT_REQUEST_BYTES = 1024 * 1024
MAX_IN_FLIGHT = 5  # of an idempotent producer: brokers remember as many batches (KIP-98)


@dataclass(frozen=True)
class SinkSettings:
    """Everything that decides how rows are written; plain data that can be pickled."""

    client: ClientSettings
    topic: str | None = None
    acks: int = ACKS_ALL
    idempotent: bool = True
    codec: int = 0
    level: int | None = None
    batch_bytes: int = DEFAULT_BATCH_BYTES
    buffer_bytes: int = DEFAULT_BUFFER_BYTES
    max_request_bytes: int = DEFAULT_REQUEST_BYTES
    max_in_flight: int = MAX_IN_FLIGHT
    max_block_ms: int = 60_000
    delivery_timeout_ms: int = 120_000
    retries: int = 2**31 - 1
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    ignore_keys: bool = False

    @property
    def in_row(self) -> int:
        """How many batches of one partition may be under way without losing their order."""
        return self.max_in_flight if self.idempotent else 1
