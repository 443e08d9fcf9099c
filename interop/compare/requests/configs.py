"""DescribeConfigs, IncrementalAlterConfigs and AlterConfigs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from compare.case import Case, case, in_versions
from ottla.model.config_resources import ResourceType
from ottla.wire.messages import alter_configs as replacing
from ottla.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

TOPIC, BROKER, LOGGER = ResourceType.TOPIC, ResourceType.BROKER, ResourceType.BROKER_LOGGER
METRICS, GROUP = ResourceType.CLIENT_METRICS, ResourceType.GROUP
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
Change = tuple[str, int, str | None]


def describe(
    kind: int, name: str, keys: Sequence[str] | None = None, *, synonyms: bool = True
) -> DescribeConfigsRequest:
    resource = DescribeConfigsResource(
        resource_type=kind,
        resource_name=name,
        configuration_keys=None if keys is None else list(keys),
    )
    return DescribeConfigsRequest(resources=[resource], include_synonyms=synonyms)


def alter(
    kind: int, name: str, *changes: Change, validate_only: bool = False
) -> IncrementalAlterConfigsRequest:
    configs = [
        AlterableConfig(name=key, config_operation=operation, value=value)
        for key, operation, value in changes
    ]
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    return IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)


def replace(
    kind: int, name: str, *configs: tuple[str, str | None], validate_only: bool = False
) -> replacing.AlterConfigsRequest:
    resource = replacing.AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[replacing.AlterableConfig(name=key, value=value) for key, value in configs],
    )
    return replacing.AlterConfigsRequest(resources=[resource], validate_only=validate_only)


def cases() -> Iterator[Case]:
    """Yield the cases."""
    yield from _describe()
    yield from _incremental()
    yield from _replacing()
    yield from _brokers()
    yield from _groups()


def _describe() -> Iterator[Case]:
    for topic in ("empty", "configured"):
        yield from in_versions(topic, (1, 2, 3, 4), describe(TOPIC, topic))
    yield case("without synonyms", 4, describe(TOPIC, "configured", synonyms=False))
    yield case("one key", 4, describe(TOPIC, "configured", ["retention.ms"]))
    yield case("key twice", 4, describe(TOPIC, "configured", ["retention.ms", "retention.ms"]))
    yield case("unknown key", 4, describe(TOPIC, "configured", ["no.such"]))
    yield case("no keys", 4, describe(TOPIC, "configured", []))
    yield from in_versions("unknown topic", (1, 4), describe(TOPIC, "nowhere"))
    yield case("bad topic", 4, describe(TOPIC, "a b"))
    yield case("empty topic", 4, describe(TOPIC, ""))
    yield case("dots", 4, describe(TOPIC, ".."))
    yield case("long topic", 4, describe(TOPIC, "n" * 250))
    yield from in_versions("broker", (1, 4), describe(BROKER, "1"))
    yield case("all brokers", 4, describe(BROKER, ""))
    yield case("another broker", 4, describe(BROKER, "7"))
    yield case("broker that is no number", 4, describe(BROKER, "seven"))
    yield case("broker key", 4, describe(BROKER, "1", ["log.retention.hours", "num.io.threads"]))
    yield case("kerberos", 4, describe(BROKER, "1", ["sasl.kerberos.min.time.before.relogin"]))
    yield case("group", 4, describe(GROUP, "g"))
    yield case("empty group", 4, describe(GROUP, ""))
    yield case("unknown type", 4, describe(77, "x"))
    yield case("type 0", 4, describe(0, "x"))
    yield case("client metrics", 4, describe(METRICS, "x"))
    yield case("loggers of another broker", 4, describe(LOGGER, "7"))
    yield case("no resources", 4, DescribeConfigsRequest())
    twice = describe(TOPIC, "empty", ["retention.ms"])
    twice.resources.append(twice.resources[0])
    yield case("resource twice", 4, twice)


def _incremental() -> Iterator[Case]:
    changes: dict[str, tuple[Change, ...]] = {
        "set": (("retention.ms", SET, "5"),),
        "delete": (("retention.ms", DELETE, None),),
        "delete with a value": (("retention.ms", DELETE, "5"),),
        "delete what is not set": (("segment.ms", DELETE, None),),
        "append": (("cleanup.policy", APPEND, "compact"),),
        "append what is there": (("cleanup.policy", APPEND, "delete"),),
        "subtract": (("cleanup.policy", SUBTRACT, "delete"),),
        "subtract what is not there": (("cleanup.policy", SUBTRACT, "burn"),),
        "append a bad word": (("cleanup.policy", APPEND, "burn"),),
        "append to a number": (("retention.ms", APPEND, "5"),),
        "subtract from a number": (("retention.ms", SUBTRACT, "5"),),
        "append to an unknown one": (("no.such", APPEND, "5"),),
        "set an unknown one": (("no.such", SET, "5"),),
        "delete an unknown one": (("no.such", DELETE, None),),
        "set null": (("retention.ms", SET, None),),
        "append null": (("cleanup.policy", APPEND, None),),
        "unknown operation": (("retention.ms", 9, "5"),),
        "negative operation": (("retention.ms", -1, "5"),),
        "set twice": (("retention.ms", SET, "5"), ("retention.ms", SET, "6")),
        "set and delete": (("retention.ms", SET, "5"), ("retention.ms", DELETE, None)),
        "set a bad number": (("retention.ms", SET, "x"),),
        "set a number below the least": (("retention.ms", SET, "-2"),),
        "set a bad word": (("compression.type", SET, "brotli"),),
        "set a good and a bad one": (("retention.ms", SET, "5"), ("segment.ms", SET, "x")),
        "set an empty text": (("retention.ms", SET, ""),),
        "set a broker setting": (("num.io.threads", SET, "5"),),
        "crossed lags": (("min.compaction.lag.ms", SET, "9"), ("max.compaction.lag.ms", SET, "8")),
        "more in sync replicas": (("min.insync.replicas", SET, "3"),),
        "tiered": (("remote.storage.enable", SET, "true"),),
        "nothing": (),
    }
    for name, wanted in changes.items():
        yield case(name, 1, alter(TOPIC, "empty", *wanted, validate_only=True))
    yield case("set", 0, alter(TOPIC, "empty", *changes["set"], validate_only=True))
    yield case("set for good", 1, alter(TOPIC, "configured", *changes["set"]), changes=True)
    yield case("append for good", 1, alter(TOPIC, "grown", *changes["append"]), changes=True)
    yield case("unknown topic", 1, alter(TOPIC, "nowhere", *changes["set"]))
    yield case("unknown topic, bad setting", 1, alter(TOPIC, "nowhere", ("no.such", SET, "1")))
    yield case("bad topic", 1, alter(TOPIC, "a b", *changes["set"]))
    yield case("empty topic", 1, alter(TOPIC, "", *changes["set"]))
    yield case("unknown type", 1, alter(77, "x", *changes["set"]))
    yield case("client metrics", 1, alter(METRICS, "x", ("no.such", SET, "1")))
    yield case("metrics without a name", 1, alter(METRICS, "", ("interval.ms", SET, "1000")))
    yield case("loggers of another broker", 1, alter(LOGGER, "7", ("a", SET, "INFO")))
    yield case("no resources", 1, IncrementalAlterConfigsRequest())
    twice = alter(TOPIC, "empty", *changes["set"], validate_only=True)
    twice.resources.append(twice.resources[0])
    yield case("resource twice", 1, twice)
    two = alter(TOPIC, "empty", *changes["set"], validate_only=True)
    two.resources.extend(alter(TOPIC, "nowhere", *changes["set"]).resources)
    yield case("a good and a bad resource", 1, two)
    yield case("after the changes", 1, describe(TOPIC, "configured", ["retention.ms"]))
    yield case("after the append", 1, describe(TOPIC, "grown", ["cleanup.policy"]))


def _replacing() -> Iterator[Case]:
    checked = {"validate_only": True}
    for version in (0, 1, 2):
        yield case("set", version, replace(TOPIC, "empty", ("retention.ms", "5"), **checked))
    wanted: dict[str, tuple[tuple[str, str | None], ...]] = {
        "null": (("retention.ms", None),),
        "unknown": (("no.such", "1"),),
        "bad number": (("retention.ms", "x"),),
        "twice": (("retention.ms", "1"), ("retention.ms", "2")),
        "nothing": (),
    }
    for name, configs in wanted.items():
        yield case(name, 2, replace(TOPIC, "empty", *configs, **checked))
    yield case("unknown topic", 2, replace(TOPIC, "nowhere", ("retention.ms", "1")))
    yield case("unknown type", 2, replace(77, "x", ("retention.ms", "1")))
    yield case("replaced", 2, replace(TOPIC, "configured", ("segment.ms", "9")), changes=True)
    yield case(
        "after the replacement", 2, describe(TOPIC, "configured", ["retention.ms", "segment.ms"])
    )
    twice = replace(TOPIC, "empty", ("retention.ms", "5"), **checked)
    twice.resources.append(twice.resources[0])
    yield case("resource twice", 2, twice)


def _brokers() -> Iterator[Case]:
    yield case(
        "broker: set",
        1,
        alter(BROKER, "1", ("log.segment.delete.delay.ms", SET, "5")),
        changes=True,
    )
    yield case(
        "all brokers: set",
        1,
        alter(BROKER, "", ("log.retention.ms", SET, "99000000")),
        changes=True,
    )
    yield case(
        "dynamic broker setting",
        4,
        describe(BROKER, "1", ["log.segment.delete.delay.ms", "log.retention.ms"]),
    )
    yield case("dynamic cluster setting", 4, describe(BROKER, ""))
    yield case(
        "topic with a dynamic default",
        4,
        describe(TOPIC, "empty", ["retention.ms", "file.delete.delay.ms"]),
    )
    back = (("log.segment.delete.delay.ms", DELETE, None),)
    yield case("broker: delete", 1, alter(BROKER, "1", *back), changes=True)
    yield case(
        "all brokers: delete",
        1,
        alter(BROKER, "", ("log.retention.ms", DELETE, None)),
        changes=True,
    )
    for kind, name in (("broker", "1"), ("all brokers", "")):
        for setting, value in (
            ("node.id", "5"), ("log.dirs", "/x"), ("no.such", "5"), ("num.io.threads", "x"),
            ("listeners", "PLAINTEXT://:1"), ("num.partitions", "7"), ("retention.ms", "5"),
            ("num.io.threads", "0"), ("num.io.threads", "4"), ("sasl.enabled.mechanisms", "PLAIN"),
            ("auto.create.topics.enable", "true"), ("compression.type", "brotli"),
            ("log.retention.ms", "0"), ("max.connections.per.ip", "5"),
        ):  # fmt: skip
            yield case(
                f"{kind}: {setting}={value}", 1,
                alter(BROKER, name, (setting, SET, value), validate_only=True),
            )  # fmt: skip
    yield case("another broker", 1, alter(BROKER, "7", ("num.io.threads", SET, "5")))
    yield case("broker that is no number", 1, alter(BROKER, "x", ("num.io.threads", SET, "5")))
    two = (("node.id", SET, "5"), ("log.dirs", SET, "/x"))
    yield case("two that are fixed", 1, alter(BROKER, "1", *two, validate_only=True))


def _groups() -> Iterator[Case]:
    for setting, value in (
        ("consumer.session.timeout.ms", "50000"), ("consumer.session.timeout.ms", "1"),
        ("consumer.session.timeout.ms", "x"), ("consumer.heartbeat.interval.ms", "10"),
        ("consumer.heartbeat.interval.ms", "99999999"), ("no.such", "1"),
        ("consumer.heartbeat.interval.ms", "-1"),
    ):  # fmt: skip
        wanted = alter(GROUP, "g", (setting, SET, value), validate_only=True)
        yield case(f"group: {setting}={value}", 1, wanted)
    yield case(
        "group without a name", 1, alter(GROUP, "", ("consumer.session.timeout.ms", SET, "50000"))
    )
    yield case(
        "group: set",
        1,
        alter(GROUP, "g", ("consumer.session.timeout.ms", SET, "50000")),
        changes=True,
    )
    yield case("group with a setting", 4, describe(GROUP, "g"))
