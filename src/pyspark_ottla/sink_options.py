"""The options of the sink: `topic`, and `kafka.*` with the properties of Kafka's producer.

What configures the connection goes to `ottla.client.settings`. Properties that only mean
something to the Java producer are accepted and have no effect, so that a job can be moved over
as it is; what would need Java code, and names that no producer has, are refused.
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.client.producer.producer import ACKS_ALL
from ottla.records.compression import CODECS
from pyspark_ottla.kafka_options import MAX_INT, PREFIX, check_names, client_of, kafka_properties
from pyspark_ottla.option_values import OptionError, whole_number
from pyspark_ottla.sink_settings import (
    DEFAULT_BATCH_BYTES,
    DEFAULT_BUFFER_BYTES,
    DEFAULT_REQUEST_BYTES,
    MAX_IN_FLIGHT,
    SinkSettings,
)

REFUSED = {
    "key.serializer": "keys are serialized with ByteArraySerializer: make them strings or binaries"
    " with DataFrame operations",
    "value.serializer": "values are serialized with ByteArraySerializer: make them strings or"
    " binaries with DataFrame operations",
    "interceptor.classes": "it names Java code; use DataFrame operations",
    "partitioner.class": "it names Java code; write the partition of each row into a column called"
    " partition",
    "transactional.id": "the sink writes at least once, without transactions",
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
        "transaction.timeout.ms",
    }
)


def sink_settings(options: Mapping[str, str]) -> SinkSettings:
    """The settings that these options ask for; OptionError names one that cannot be used."""
    properties = kafka_properties(options)
    check_names(properties, REFUSED, PRODUCER_PROPERTIES | WITHOUT_EFFECT, "sink")
    topic = {name.lower(): text for name, text in options.items()}.get("topic")
    numbers = {name: _number(properties, name) for name in NUMBERS}
    acks = _acks(properties)
    codec_name = properties.get("compression.type", "none").strip().lower()
    return SinkSettings(
        client=client_of(properties),
        topic=None if topic is None else topic.strip(),
        acks=acks,
        idempotent=_idempotent(properties, acks, numbers),
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
    )


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
    """As Kafka's producer: on unless acks, retries or requests in flight speak against it."""
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
