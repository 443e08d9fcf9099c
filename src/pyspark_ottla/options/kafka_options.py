"""The `kafka.*` options of the source: the ones it uses, rejects or ignores.

Settings of the connection (brokers, TLS, SASL, rack) are parsed by `ottla.client.settings`.
Settings of fetches are parsed here. Settings that only the Java consumer understands are
accepted and ignored, so that an existing job runs unchanged. A name that no Kafka consumer has
is rejected, because it is a typing error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from ottla.client.settings import CLIENT_PROPERTIES, ClientSettings, SettingError, client_settings
from pyspark_ottla.options.option_values import OptionError, whole_number

PREFIX = "kafka."
DEFAULT_CLIENT_ID = "ottla-spark"
MAX_INT = 2**31 - 1

REFUSED = {
    "auto.offset.reset": "set the option startingOffsets to earliest or latest instead. It says"
    " where a new query starts; a restarted query continues from its checkpoint",
    "key.deserializer": "keys are always bytes: convert them with DataFrame operations,"
    " e.g. CAST(key AS STRING)",
    "value.deserializer": "values are always bytes: convert them with DataFrame operations,"
    " e.g. CAST(value AS STRING)",
    "key.serializer": "it is a producer setting, and keys are bytes here. Remove it",
    "value.serializer": "it is a producer setting, and values are bytes here. Remove it",
    "enable.auto.commit": "the checkpoint stores the offsets. To see them as a consumer group, set"
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
    """How to connect to the cluster and how to fetch from it."""

    client: ClientSettings
    read_committed: bool = False
    group_id: str | None = None
    check_crcs: bool = True
    fetch_max_bytes: int | None = None
    max_partition_fetch_bytes: int | None = None
    fetch_max_wait_ms: int | None = None


def kafka_options(options: Mapping[str, str]) -> KafkaOptions:
    """Return the `kafka.*` options of a source. Raise OptionError for an invalid one."""
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
    """Return the options that begin with `kafka.`, without the prefix and in lower case."""
    return {
        name.lower().removeprefix(PREFIX): text
        for name, text in options.items()
        if name.lower().startswith(PREFIX)
    }


def client_of(properties: Mapping[str, str]) -> ClientSettings:
    """Return the settings of the connection. Raise OptionError for an invalid property."""
    if "bootstrap.servers" not in properties:
        raise OptionError("kafka.bootstrap.servers must be set: expected host:port,host:port,...")
    named = {name: text for name, text in properties.items() if name in CLIENT_PROPERTIES}
    try:
        return client_settings({"client.id": DEFAULT_CLIENT_ID} | named)
    except SettingError as error:
        raise OptionError(f"{PREFIX}{error.name}: {error.why}") from None


def check_names(
    properties: Mapping[str, str], refused: Mapping[str, str], accepted: frozenset[str], side: str
) -> None:
    """Raise OptionError for a rejected property, with the reason, and for an unknown one."""
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
        raise OptionError(f"{PREFIX}{name} is {text!r}: expected a whole number from 0 on")
    return number
