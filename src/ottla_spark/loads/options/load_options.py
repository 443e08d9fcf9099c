"""All options of a load, with the checks that need nothing but the options."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ottla_spark.loads.errors import LoadUsageError
from ottla_spark.loads.options.dead_letter_option import DeadLetters
from ottla_spark.loads.options.partition_by import PartitionBy
from ottla_spark.loads.options.start_option import start_options
from ottla_spark.loads.options.value_format import ValueFormat
from ottla_spark.loads.targets.address import TableAddress
from ottla_spark.loads.targets.registry import compaction_schemes, upsert_schemes

MIB = 1 << 20
DEFAULT_TARGET_FILE_SIZE = 128 * MIB
TRIGGER_S = 5.0
ISOLATION_LEVEL = "isolation.level"
READ_COMMITTED = "read_committed"
READ_UNCOMMITTED = "read_uncommitted"
_REGISTRY_FORMATS = frozenset({ValueFormat.AVRO, ValueFormat.PROTOBUF})


@dataclass(frozen=True)
class Once:
    """Load the records that the topic has now, then end."""


@dataclass(frozen=True)
class Every:
    """Load the records that the topic has, and repeat after each interval until stopped."""

    interval_s: float


@dataclass(frozen=True)
class Continuous:
    """Load new records, one batch per interval, until stopped."""

    interval_s: float = TRIGGER_S


@dataclass(frozen=True)
class LoadOptions:
    """The options of one load."""

    topic: str
    to: TableAddress
    client: Mapping[str, str]
    """Kafka's client properties, including bootstrap.servers."""
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
    max_bytes_per_batch: int | None = None
    group: str | None = None
    allow_data_loss: bool = False
    reset: bool = False
    """Delete the rows and the checkpoint first, and load everything again."""
    isolation_level: str | None = None
    """read_committed or read_uncommitted; None for the client's property or else the default."""
    catalog: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._check_target()
        if self.format is ValueFormat.RAW:
            self._check_raw()
        if self.registry is not None and self.format not in _REGISTRY_FORMATS:
            raise LoadUsageError("--registry needs --format avro or --format protobuf")
        if self.message is not None and self.format is not ValueFormat.PROTOBUF:
            raise LoadUsageError("--message needs --format protobuf")
        if self.isolation_level not in {None, READ_COMMITTED, READ_UNCOMMITTED}:
            raise LoadUsageError(
                f"--isolation-level should be {READ_COMMITTED} or {READ_UNCOMMITTED}"
            )
        start_options(self.starting_offsets, self.topic)
        self._check_dead_letters()

    def _check_target(self) -> None:
        target = self.to.target
        why = target.why_not_at(self.to.location)
        if why:
            raise LoadUsageError(f"--to {self.to}: {why}")
        why = target.why_no_upsert(key_columns=1) if self.upsert else ""
        if why:
            raise LoadUsageError(f"--upsert: {why}. Use {upsert_schemes()}")
        why = target.why_no_compaction() if self.compact else ""
        if why:
            raise LoadUsageError(
                f"--compact: {why}. Only {compaction_schemes()} tables can be compacted"
            )

    def _check_dead_letters(self) -> None:
        """Raise LoadUsageError if dead letters would be loaded again, or be part of the table."""
        wanted = self.dead_letters
        if wanted.topic == self.topic:
            raise LoadUsageError(
                f"--dead-letters topic:{wanted.topic} is the topic that is loaded: use another one"
            )
        here, there = (f"{path.rstrip('/')}/" for path in (self.to.location, wanted.path))
        if wanted.path and (here.startswith(there) or there.startswith(here)):
            raise LoadUsageError(
                f"--dead-letters {wanted.path} and --to {self.to} need directories apart from each"
                " other"
            )

    def _check_raw(self) -> None:
        for given, name in ((self.schema, "--schema"), (self.evolve, "--evolve")):
            if given:
                raise LoadUsageError(f"{name} has no meaning for raw values: set --format")
        if self.coordinates:
            raise LoadUsageError("--coordinates is not needed: a raw table has these columns")

    @property
    def group_id(self) -> str:
        """The consumer group that shows the load's lag; named after topic and table by default."""
        if self.group is not None:
            return self.group
        mark = hashlib.sha256(str(self.to).encode()).hexdigest()[:6]
        return f"ottla-load.{self.topic}.{self.to.name}.{mark}"

    @property
    def source_properties(self) -> dict[str, str]:
        """The client properties of the source, which reads only committed records by default."""
        properties = {ISOLATION_LEVEL: READ_COMMITTED} | dict(self.client)
        if self.isolation_level is not None:
            properties[ISOLATION_LEVEL] = self.isolation_level
        return properties

    @property
    def read_committed(self) -> bool:
        """True if records of open and aborted transactions are not loaded."""
        return self.source_properties[ISOLATION_LEVEL].strip().lower() == READ_COMMITTED

    @property
    def schema_digest(self) -> str:
        """A digest of --schema, or of the file that it names; empty without one."""
        if self.schema is None:
            return ""
        path = Path(self.schema)
        content = path.read_bytes() if _is_file(path) else self.schema.encode()
        return hashlib.sha256(content).hexdigest()

    @property
    def identity(self) -> dict[str, str]:
        """The options that must not change between runs of one load."""
        return {
            "topic": self.topic,
            "table": str(self.to),
            "format": str(self.format),
            "upsert": str(self.upsert).lower(),
            "coordinates": str(self.coordinates).lower(),
            "headers": str(self.headers).lower(),
            "partition-by": ",".join(map(str, self.partition_by)),
        }


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # DDL is no path
        return False
