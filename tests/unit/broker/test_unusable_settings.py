"""Settings in the metadata that this broker cannot use: it says so, and goes on without them.

A controller has checked them, but with its own file, or before other settings changed. It may also
be a newer one, or one of Apache Kafka.
"""

from __future__ import annotations

from ottla.metadata.records import ConfigRecord
from ottla.model.config_resources import ResourceType
from ottla.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from tests.support.broker import Broker


def setting(name: str, value: str, resource: str = "", *, topic: bool = False) -> ConfigRecord:
    kind = ResourceType.TOPIC if topic else ResourceType.BROKER
    return ConfigRecord(resource_type=kind, resource_name=resource, name=name, value=value)


def test_dynamic_broker_settings(broker: Broker) -> None:
    before = broker.node.config.cleaner.log_cleaner_threads
    broker.write_metadata(
        setting("log.cleaner.threads", "many"),
        setting("setting.of.tomorrow", "1"),
        setting("log.retention.ms", "7000"),
    )
    assert broker.node.config.cleaner.log_cleaner_threads == before
    assert broker.node.config.log_defaults.retention_ms == 7000
    assert "log.cleaner.threads" in "".join(broker.reports)


def test_settings_that_are_not_valid_together_leave_those_of_the_file(broker: Broker) -> None:
    broker.write_metadata(
        setting("log.cleaner.min.compaction.lag.ms", "20"),
        setting("log.cleaner.max.compaction.lag.ms", "10"),
    )
    assert broker.node.config.log_defaults.min_compaction_lag_ms == 0


def test_settings_of_a_topic(broker: Broker) -> None:
    log = broker.topic().online_log()
    broker.write_metadata(
        setting("max.compaction.lag.ms", "10", "t", topic=True),
        setting("retention.ms", "7000", "t", topic=True),
        setting("segment.bytes", "large", "t", topic=True),
        setting("setting.of.tomorrow", "1", "t", topic=True),
        setting("remote.storage.enable", "true", "t", topic=True),
    )
    assert (log.config.max_compaction_lag_ms, log.config.retention_ms) == (10, 7000)
    assert not log.config.remote_storage_enable
    reports = [each for each in broker.reports if each.startswith("t has settings")]
    assert len(reports) == 1
    resource = DescribeConfigsResource(resource_type=ResourceType.TOPIC, resource_name="t")
    response = broker.connect().ask(DescribeConfigsRequest(resources=[resource]), 4)
    values = {each.name: each.value for each in response.results[0].configs}
    assert (values["segment.bytes"], values["retention.ms"]) == ("large", "7000")


def test_a_default_that_contradicts_a_topic(broker: Broker) -> None:
    log = broker.topic().online_log()
    broker.write_metadata(setting("max.compaction.lag.ms", "10", "t", topic=True))
    broker.write_metadata(setting("log.cleaner.min.compaction.lag.ms", "20"))
    assert (log.config.min_compaction_lag_ms, log.config.max_compaction_lag_ms) == (20, 10)


def test_settings_that_are_wrong_again_are_reported_again(broker: Broker) -> None:
    broker.topic()
    for value in ("large", "9000000", "large", "large"):
        broker.write_metadata(setting("segment.bytes", value, "t", topic=True))
    reports = [each for each in broker.reports if each.startswith("t has settings")]
    assert len(reports) == 2
