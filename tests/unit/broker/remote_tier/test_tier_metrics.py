"""The metrics of the remote tier."""

from __future__ import annotations

from typing import Any

from ottla.broker.metrics.prometheus_text import render
from ottla.controller.topics import UnwantedTopic, delete_topics
from ottla.model.errors import ErrorCode
from ottla.replication.partition import Partition
from ottla.sim.object_store import StoreFaults
from tests.support.broker import Broker, Client
from tests.support.tiered_broker import AWAY, TieredBroker

COUNT = 21
TOPICS = "kafka_server_brokertopicmetrics_"


def figures(broker: Broker) -> dict[str, int]:
    lines = render(broker.node).decode().splitlines()
    values = (line.rsplit(" ", 1) for line in lines if "remote" in line and line[0] != "#")
    return {name.removeprefix(TOPICS): int(value) for name, value in values}


def test_a_broker_without_a_tier_has_no_figures_of_it() -> None:
    assert not figures(Broker())


def test_copies_and_reads(broker: TieredBroker, client: Client) -> None:
    broker.fill(client, COUNT)
    broker.work()
    copied = len(broker.manifests)
    stored = sum(len(each) for key, each in broker.store.objects.items() if key.endswith(".log"))
    found = figures(broker)
    assert found["remotecopyrequests_total"] == found["remotelogmetadatacount"] == copied
    assert found["remotecopybytes_total"] == found["remotelogsizebytes"] == stored
    assert found["remotecopylagsegments"] == found["remotecopylagbytes"] == 0
    assert found["remotefetchbytes_total"] == found["ottla_remote_store_read_bytes_total"] == 0
    assert broker.consume(client) == list(range(COUNT))
    found = figures(broker)
    assert 0 < found["remotefetchrequests_total"] <= COUNT
    assert 0 < found["remotefetchbytes_total"] <= stored
    assert found["ottla_remote_store_read_bytes_total"] >= found["remotefetchbytes_total"]
    assert not [name for name, value in found.items() if "error" in name and value]


def test_a_store_that_is_away_shows_as_lag_and_errors(
    broker: TieredBroker, partition: Partition, client: Client
) -> None:
    broker.store.faults = AWAY
    broker.fill(client, COUNT)
    broker.work()
    log = partition.online_log()
    found = figures(broker)
    assert found["remotecopyerrors_total"] > 0
    assert found["remotecopylagsegments"] == len(log.segments) - 1
    assert found["remotecopylagbytes"] == log.size - log.active.size
    broker.store.faults = StoreFaults()
    broker.work(100_000)
    found = figures(broker)
    assert found["remotecopylagsegments"] == found["remotecopylagbytes"] == 0
    broker.store.faults = AWAY
    assert broker.fetch(client, 0).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert figures(broker)["remotefetcherrors_total"] > 0


def test_what_is_to_be_deleted(broker: TieredBroker, partition: Partition, client: Client) -> None:
    broker.fill(client, COUNT)
    broker.work()
    broker.store.faults = AWAY
    partition.online_log().advance_log_start(10)
    broker.work()
    found = figures(broker)
    assert found["remotedeleteerrors_total"] > 0
    assert found["remotedeletelagsegments"] > 0
    assert found["remotedeletelagbytes"] > 0
    broker.store.faults = StoreFaults()
    broker.work(100_000)
    found = figures(broker)
    assert found["remotedeletelagsegments"] == found["remotedeletelagbytes"] == 0
    assert found["remotedeleterequests_total"] > found["remotedeleteerrors_total"]
    assert found["remotelogmetadatacount"] == len(broker.manifests)


def test_a_topic_that_is_deleted_does_not_count(
    broker: TieredBroker, partition: Partition, client: Client
) -> None:
    broker.fill(client, COUNT)
    broker.work()
    assert figures(broker)["remotelogsizebytes"] > 0

    def decide(image: Any) -> Any:
        unwanted = [UnwantedTopic(name="t")]
        decision = yield from delete_topics(image, broker.node.config, unwanted)
        return decision.records

    broker.node.controller.decide(decide, lambda failure: None)
    broker.work()
    found = figures(broker)
    assert (found["remotelogsizebytes"], found["remotelogmetadatacount"]) == (0, 0)
