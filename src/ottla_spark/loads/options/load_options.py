"""Everything a load is told; checked where one value is enough to see that it is wrong."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from ottla_spark.loads.errors import LoadUsageError
from ottla_spark.loads.options.partition_by import PartitionBy
from ottla_spark.loads.targets.address import DeadLetters, Kind, Target, ValueFormat

MIB = 1 << 20
DEFAULT_TARGET_FILE_SIZE = 128 * MIB
TRIGGER_S = 5.0
_DECODED_BY_SCHEMA = frozenset({ValueFormat.AVRO, ValueFormat.PROTOBUF})


@dataclass(frozen=True)
class Once:
    """Load what is there and end."""


@dataclass(frozen=True)
class Every:
    """Load what is there, again after each interval, until stopped."""

    interval_s: float


@dataclass(frozen=True)
class Continuous:
    """Load what comes, a batch whenever the interval is over, until stopped."""

    interval_s: float = TRIGGER_S


@dataclass(frozen=True)
class LoadOptions:
    """One load."""

    topic: str
    to: Target
    client: Mapping[str, str]
    """Kafka's client properties, bootstrap.servers among them."""
    when: Once | Every | Continuous = field(default_factory=Once)
    format: ValueFormat = ValueFormat.RAW
    schema: str | None = None
    message: str | None = None
    registry: str | None = None
    registry_login: str = ""
    starting_offsets: str = "earliest"
    coordinates: bool = False
    headers: bool = False
    partition_by: tuple[PartitionBy, ...] = ()
    upsert: bool = False
    evolve: bool = False
    compact: bool = False
    dead_letters: DeadLetters = field(default_factory=DeadLetters)
    checkpoint: str | None = None
    target_file_size: int = DEFAULT_TARGET_FILE_SIZE
    max_records_per_batch: int | None = None
    group: str | None = None
    allow_data_loss: bool = False
    catalog: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.upsert and self.to.kind is Kind.PARQUET:
            raise LoadUsageError(
                "--upsert needs a table that can replace rows: delta: or iceberg:, not parquet:"
            )
        if self.compact and self.to.kind is Kind.ICEBERG:
            raise LoadUsageError("--compact is for parquet: and delta:, not iceberg:")
        if self.format is ValueFormat.RAW:
            self._refuse_for_raw()
        if self.registry is not None and self.format not in {
            ValueFormat.AVRO,
            ValueFormat.PROTOBUF,
        }:
            raise LoadUsageError("--registry is for --format avro and --format protobuf")
        if self.message is not None and self.format is not ValueFormat.PROTOBUF:
            raise LoadUsageError("--message is for --format protobuf")
        if self.starting_offsets not in {"earliest", "latest"}:
            raise LoadUsageError("--from should be earliest or latest")

    def _refuse_for_raw(self) -> None:
        for given, name in ((self.schema, "--schema"), (self.evolve, "--evolve")):
            if given:
                raise LoadUsageError(f"{name} says nothing about raw values: give --format")
        if self.coordinates:
            raise LoadUsageError("--coordinates are columns of a raw table already")

    @property
    def group_id(self) -> str:
        """The group whose offsets show how far the load is: named after topic and table."""
        if self.group is not None:
            return self.group
        mark = hashlib.sha256(str(self.to).encode()).hexdigest()[:6]
        return f"ottla-load.{self.topic}.{self.to.name}.{mark}"

    @property
    def identity(self) -> dict[str, str]:
        """What may not change between runs of one load."""
        return {
            "topic": self.topic,
            "table": str(self.to),
            "format": str(self.format),
            "upsert": str(self.upsert).lower(),
            "coordinates": str(self.coordinates).lower(),
            "headers": str(self.headers).lower(),
            "partition-by": ",".join(map(str, self.partition_by)),
        }
