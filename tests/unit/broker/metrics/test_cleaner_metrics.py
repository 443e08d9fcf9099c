"""The metrics of the log cleaner."""

from __future__ import annotations

from ottla.broker.metrics.prometheus_text import render
from tests.support.groups import TOPIC, Broker, clean_groups, commit


def figures(broker: Broker) -> dict[str, str]:
    lines = render(broker.node).decode().splitlines()
    return dict(line.rsplit(" ", 1) for line in lines if line and not line.startswith("#"))


def test_a_broker_without_a_cleaner_has_no_figures_of_it() -> None:
    broker = Broker()
    broker.node.hosted_logs.cleaning.cleaner = None
    assert not any("cleaner" in name for name in figures(broker))


def test_what_a_clean_leaves_in_the_figures() -> None:
    broker = Broker()
    for offset in range(100):
        commit(broker.connect(), {(TOPIC, 0): offset})
    clean_groups(broker)
    broker.pass_ms(16_000)
    found = figures(broker)
    assert found["ottla_log_cleaner_cleans_total"] == "1"
    assert 0 < float(found["kafka_log_logcleaner_cleaner_recopy_percent"]) < 20
    assert float(found["kafka_log_logcleanermanager_time_since_last_run_ms"]) < 15_000
    uncleanable = 'kafka_log_logcleanermanager_uncleanable_partitions_count{logdirectory="/data"}'
    assert found[uncleanable] == "0"
    partition = broker.log.topic_partition
    cleaner = broker.node.hosted_logs.cleaning.cleaner
    assert cleaner is not None
    cleaner.uncleanable[partition] = "damaged"
    assert figures(broker)[uncleanable] == "1"
