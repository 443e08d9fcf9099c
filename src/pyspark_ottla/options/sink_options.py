"""The options of the sink: `topic`, `deliveryGuarantee`, `txnAppId` and `txnVersion`, and `kafka.*`
with the properties of Kafka's producer.

Properties of the connection are parsed by `ottla.client.settings`. Properties that only the
Java producer understands are accepted and ignored, so that an existing job runs unchanged.
Properties that name Java code, and names that no producer has, are rejected.

Defaults are Kafka's, except the sizes of batches and of the buffer. A task of the sink has all
of its rows to send at once, so larger batches add no delay.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ottla.client.producer.producer import ACKS_ALL
from ottla.client.settings import ClientSettings
from ottla.records.compression import CODECS
from pyspark_ottla.options.kafka_options import (
    MAX_INT,
    PREFIX,
    check_names,
    client_of,
    kafka_properties,
)
from pyspark_ottla.options.option_values import OptionError, whole_number

DEFAULT_BATCH_BYTES = 512 * 1024
DEFAULT_BUFFER_BYTES = 64 * 1024 * 1024
DEFAULT_REQUEST_BYTES = 1024 * 1024
DEFAULT_TRANSACTION_TIMEOUT_MS = (
    900_000  # what brokers allow by default (transaction.max.timeout.ms)
)
MAX_IN_FLIGHT = 5  # of an idempotent producer: brokers remember that many batches (KIP-98)

GUARANTEE = "deliveryGuarantee"
EXACTLY_ONCE = "exactly-once"
AT_LEAST_ONCE = "at-least-once"

REFUSED = {
    "key.serializer": "keys are serialized with ByteArraySerializer: convert them to string or"
    " binary with DataFrame operations",
    "value.serializer": "values are serialized with ByteArraySerializer: convert them to string or"
    " binary with DataFrame operations",
    "interceptor.classes": "it names Java code; use DataFrame operations",
    "partitioner.class": "it names Java code; put the partition of each row into a column named"
    " partition",
    "transactional.id": "the sink names its transactions itself. Remove it",
}
NUMBERS = {
    "batch.size": (0, DEFAULT_BATCH_BYTES),
    "buffer.memory": (0, DEFAULT_BUFFER_BYTES),
    "delivery.timeout.ms": (1, 120_000),
    "linger.ms": (0, 5),
    "max.block.ms": (1, 60_000),
    "max.in.flight.requests.per.connection": (1, MAX_IN_FLIGHT),
    "max.request.size": (1, DEFAULT_REQUEST_BYTES),
    "retries": (0, MAX_INT),
    "retry.backoff.max.ms": (0, 1_000),
    "retry.backoff.ms": (0, 100),
    "transaction.timeout.ms": (1, DEFAULT_TRANSACTION_TIMEOUT_MS),
}
LEVELS = {"gzip": (-1, 9), "lz4": (1, 17), "zstd": (-131072, 22)}
PRODUCER_PROPERTIES = frozenset(
    {
        *NUMBERS,
        *(f"compression.{codec}.level" for codec in LEVELS),
        "acks",
        "compression.type",
        "enable.idempotence",
        "partitioner.ignore.keys",
    }
)
WITHOUT_EFFECT = frozenset(
    {
        "auto.include.jmx.reporter",
        "client.dns.lookup",
        "config.providers",
        "connections.max.idle.ms",
        "enable.metrics.push",
        "metadata.max.age.ms",
        "metadata.max.idle.ms",
        "metadata.recovery.rebootstrap.trigger.ms",
        "metadata.recovery.strategy",
        "metric.reporters",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
        "partitioner.adaptive.partitioning.enable",
        "partitioner.availability.timeout.ms",
        "receive.buffer.bytes",
        "reconnect.backoff.max.ms",
        "reconnect.backoff.ms",
        "security.providers",
        "send.buffer.bytes",
        "socket.connection.setup.timeout.max.ms",
        "socket.connection.setup.timeout.ms",
    }
)


@dataclass(frozen=True)
class SinkSettings:
    """The settings of the sink's producer, as plain data that can be pickled."""

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
    exactly_once: bool = False
    transaction_timeout_ms: int = DEFAULT_TRANSACTION_TIMEOUT_MS
    application: tuple[str, int] | None = None
    """The name and number that identify a batch write, so that it is done once."""

    @property
    def max_in_flight_per_partition(self) -> int:
        """How many batches of one partition may be in flight without losing their order."""
        return self.max_in_flight if self.idempotent else 1


def sink_settings(options: Mapping[str, str]) -> SinkSettings:
    """Return the settings that the options ask for. Raise OptionError for an invalid one."""
    properties = kafka_properties(options)
    check_names(properties, REFUSED, PRODUCER_PROPERTIES | WITHOUT_EFFECT, "sink")
    plain = {name.lower(): text.strip() for name, text in options.items()}
    numbers = {name: _number(properties, name) for name in NUMBERS}
    acks = _acks(properties)
    codec_name = properties.get("compression.type", "none").strip().lower()
    idempotent = _idempotent(properties, acks, numbers)
    exactly_once = _exactly_once(plain, idempotent)
    return SinkSettings(
        client=client_of(properties),
        topic=plain.get("topic"),
        acks=acks,
        idempotent=idempotent,
        codec=_codec(codec_name),
        level=_level(properties, codec_name),
        batch_bytes=max(1, min(numbers["batch.size"], numbers["max.request.size"])),
        buffer_bytes=numbers["buffer.memory"],
        max_request_bytes=numbers["max.request.size"],
        max_in_flight=numbers["max.in.flight.requests.per.connection"],
        max_block_ms=numbers["max.block.ms"],
        delivery_timeout_ms=numbers["delivery.timeout.ms"],
        retries=numbers["retries"],
        retry_backoff_ms=numbers["retry.backoff.ms"],
        retry_backoff_max_ms=numbers["retry.backoff.max.ms"],
        ignore_keys=_switch(properties, "partitioner.ignore.keys", False),
        exactly_once=exactly_once,
        transaction_timeout_ms=numbers["transaction.timeout.ms"],
        application=_application(plain, exactly_once),
    )


def _exactly_once(options: Mapping[str, str], idempotent: bool) -> bool:
    """Return the wanted guarantee. Without idempotence, exactly once is impossible."""
    text = options.get(GUARANTEE.lower())
    if text is None:
        return idempotent
    if text.lower() not in (EXACTLY_ONCE, AT_LEAST_ONCE):
        raise OptionError(f"{GUARANTEE} is {text!r}: expected {EXACTLY_ONCE} or {AT_LEAST_ONCE}")
    wanted = text.lower() == EXACTLY_ONCE
    if wanted and not idempotent:
        raise OptionError(
            f"{GUARANTEE}={EXACTLY_ONCE} needs an idempotent producer: remove {PREFIX}acks,"
            f" {PREFIX}retries and {PREFIX}enable.idempotence"
        )
    return wanted


def _application(options: Mapping[str, str], exactly_once: bool) -> tuple[str, int] | None:
    """Return txnAppId and txnVersion, which come together or not at all."""
    name, text = options.get("txnappid"), options.get("txnversion")
    if name is None and text is None:
        return None
    if not name or text is None:
        raise OptionError("txnAppId and txnVersion identify a write together: set both")
    if not exactly_once:
        raise OptionError(f"txnAppId and txnVersion need {GUARANTEE}={EXACTLY_ONCE}")
    number = whole_number(text)
    if number is None or number < 0:
        raise OptionError(f"txnVersion is {text!r}: expected a whole number from 0 on")
    return name, number


def _number(properties: Mapping[str, str], name: str) -> int:
    lowest, default = NUMBERS[name]
    text = properties.get(name)
    number = default if text is None else whole_number(text)
    if number is None or not lowest <= number <= MAX_INT:
        raise OptionError(f"{PREFIX}{name} is {text!r}: expected a whole number from {lowest} on")
    return number


def _acks(properties: Mapping[str, str]) -> int:
    text = properties.get("acks", "all").strip().lower()
    known = {"all": ACKS_ALL, "-1": ACKS_ALL, "1": 1, "0": 0}
    if text not in known:
        raise OptionError(f"{PREFIX}acks is {text!r}: expected all, 1 or 0")
    return known[text]


def _idempotent(properties: Mapping[str, str], acks: int, numbers: Mapping[str, int]) -> bool:
    """Return true unless it is off, or acks, retries or in-flight requests do not allow it.

    These are the rules of Kafka's producer.
    """
    in_flight = numbers["max.in.flight.requests.per.connection"]
    conflict = (
        f"{PREFIX}acks must be all"
        if acks != ACKS_ALL
        else f"{PREFIX}retries must not be 0"
        if numbers["retries"] == 0
        else f"{PREFIX}max.in.flight.requests.per.connection must be at most {MAX_IN_FLIGHT}"
        if in_flight > MAX_IN_FLIGHT
        else None
    )
    name = "enable.idempotence"
    wanted = _switch(properties, name, conflict is None)
    if wanted and conflict is not None:
        raise OptionError(f"{conflict} with {PREFIX}{name}=true")
    return wanted


def _codec(name: str) -> int:
    if name not in CODECS:
        raise OptionError(f"{PREFIX}compression.type is {name!r}: expected {', '.join(CODECS)}")
    return CODECS[name]


def _level(properties: Mapping[str, str], codec_name: str) -> int | None:
    name = f"compression.{codec_name}.level"
    if name not in properties:
        return None
    lowest, highest = LEVELS[codec_name]
    number = whole_number(properties[name])
    if number is None or not lowest <= number <= highest:
        raise OptionError(f"{PREFIX}{name} is {properties[name]!r}: expected {lowest} to {highest}")
    return number


def _switch(properties: Mapping[str, str], name: str, default: bool) -> bool:
    text = properties.get(name, str(default)).strip().lower()
    if text not in {"true", "false"}:
        raise OptionError(f"{PREFIX}{name} is {text!r}: expected true or false")
    return text == "true"
