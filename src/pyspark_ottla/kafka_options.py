"""The `kafka.*` options of the source: those passed on, those refused, those without effect.

What configures the connection (brokers, TLS, SASL, rack) goes to `ottla.client.settings`;
what decides how records are fetched is kept here. Settings that only mean something to the
Java consumer are accepted and ignored, so that a job can be moved over as it is; a name
that no Kafka consumer has is refused, because it is a typing error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from ottla.client.settings import CLIENT_PROPERTIES, ClientSettings, SettingError, client_settings
from pyspark_ottla.option_values import OptionError, whole_number

PREFIX = "kafka."
DEFAULT_CLIENT_ID = "ottla-spark"
MAX_INT = 2**31 - 1

REFUSED = {
    "auto.offset.reset": "set the option startingOffsets to earliest or latest instead. It says"
    " where a new query starts; a query that goes on starts where its checkpoint says",
    "key.deserializer": "keys are always bytes: turn them into something else with DataFrame"
    " operations, e.g. CAST(key AS STRING)",
    "value.deserializer": "values are always bytes: turn them into something else with DataFrame"
    " operations, e.g. CAST(value AS STRING)",
    "key.serializer": "it is a producer's, and keys are bytes here",
    "value.serializer": "it is a producer's, and values are bytes here",
    "enable.auto.commit": "the checkpoint keeps the offsets. A stream shows them as a group with"
    " the option groupId",
    "interceptor.classes": "interceptors may change records, which is not safe: use DataFrame"
    " operations",
}
FETCH_PROPERTIES = frozenset(
    {
        "check.crcs",
        "fetch.max.bytes",
        "fetch.max.wait.ms",
        "group.id",
        "isolation.level",
        "max.partition.fetch.bytes",
    }
)
WITHOUT_EFFECT = frozenset(
    {
        "allow.auto.create.topics",
        "auto.commit.interval.ms",
        "auto.include.jmx.reporter",
        "client.dns.lookup",
        "connections.max.idle.ms",
        "default.api.timeout.ms",
        "enable.metrics.push",
        "exclude.internal.topics",
        "fetch.min.bytes",
        "group.instance.id",
        "group.protocol",
        "group.remote.assignor",
        "heartbeat.interval.ms",
        "max.poll.interval.ms",
        "max.poll.records",
        "metadata.max.age.ms",
        "metadata.recovery.rebootstrap.trigger.ms",
        "metadata.recovery.strategy",
        "metric.reporters",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
        "partition.assignment.strategy",
        "receive.buffer.bytes",
        "reconnect.backoff.max.ms",
        "reconnect.backoff.ms",
        "retry.backoff.max.ms",
        "retry.backoff.ms",
        "security.providers",
        "send.buffer.bytes",
        "session.timeout.ms",
        "socket.connection.setup.timeout.max.ms",
        "socket.connection.setup.timeout.ms",
    }
)


@dataclass(frozen=True)
class KafkaOptions:
    """How to reach the cluster and how to fetch from it."""

    client: ClientSettings
    read_committed: bool = False
    group_id: str | None = None
    check_crcs: bool = True
    fetch_max_bytes: int | None = None
    max_partition_fetch_bytes: int | None = None
    fetch_max_wait_ms: int | None = None


def kafka_options(options: Mapping[str, str]) -> KafkaOptions:
    """The `kafka.*` options of a source; OptionError names one that cannot be used."""
    properties = kafka_properties(options)
    check_names(properties, REFUSED, FETCH_PROPERTIES | WITHOUT_EFFECT, "source")
    return KafkaOptions(
        client=client_of(properties),
        read_committed=_isolation_level(properties),
        group_id=properties.get("group.id"),
        check_crcs=_check_crcs(properties),
        fetch_max_bytes=_number(properties, "fetch.max.bytes"),
        max_partition_fetch_bytes=_number(properties, "max.partition.fetch.bytes"),
        fetch_max_wait_ms=_number(properties, "fetch.max.wait.ms"),
    )


def kafka_properties(options: Mapping[str, str]) -> dict[str, str]:
    """The options that begin with `kafka.`, without it and in lower case."""
    return {
        name.lower().removeprefix(PREFIX): text
        for name, text in options.items()
        if name.lower().startswith(PREFIX)
    }


def client_of(properties: Mapping[str, str]) -> ClientSettings:
    """How to reach the cluster; OptionError names a property that cannot be used."""
    if "bootstrap.servers" not in properties:
        raise OptionError("kafka.bootstrap.servers must be set: expected host:port, ...")
    named = {name: text for name, text in properties.items() if name in CLIENT_PROPERTIES}
    try:
        return client_settings({"client.id": DEFAULT_CLIENT_ID} | named)
    except SettingError as error:
        raise OptionError(f"{PREFIX}{error.name}: {error.why}") from None


def check_names(
    properties: Mapping[str, str], refused: Mapping[str, str], accepted: frozenset[str], side: str
) -> None:
    """Raise OptionError for what is refused, with the reason, and for what nobody knows."""
    known = CLIENT_PROPERTIES | accepted
    for name in properties:
        if name in refused:
            raise OptionError(f"{PREFIX}{name} cannot be set: {refused[name]}")
        if name not in known:
            near = get_close_matches(name, known, 1)
            hint = f"; did you mean {PREFIX}{near[0]}?" if near else ""
            raise OptionError(f"{PREFIX}{name} is not a setting of this {side}{hint}")


def _isolation_level(properties: Mapping[str, str]) -> bool:
    text = properties.get("isolation.level", "read_uncommitted")
    levels = {"read_uncommitted": False, "read_committed": True}
    if text.strip().lower() not in levels:
        raise OptionError(f"kafka.isolation.level is {text!r}: expected {' or '.join(levels)}")
    return levels[text.strip().lower()]


def _check_crcs(properties: Mapping[str, str]) -> bool:
    text = properties.get("check.crcs", "true")
    if text.strip().lower() not in {"true", "false"}:
        raise OptionError(f"kafka.check.crcs is {text!r}: expected true or false")
    return text.strip().lower() == "true"


def _number(properties: Mapping[str, str], name: str) -> int | None:
    text = properties.get(name)
    if text is None:
        return None
    number = whole_number(text)
    if number is None or not 0 <= number <= MAX_INT:
        raise OptionError(f"{PREFIX}{name} is {text!r}: expected a whole number")
    return number
