"""The metrics of a node as Prometheus reads them."""

from __future__ import annotations

import re
from errno import EIO

from ottla.broker.handlers import SERVED
from ottla.broker.metrics.prometheus_text import render
from ottla.wire.apis import request_class
from ottla.wire.messages.api_versions import ApiVersionsRequest
from ottla.wire.messages.metadata import MetadataRequest
from tests.support.broker import Broker, filled, partition_image, produce

SAMPLE = re.compile(r'(\w+)(?:\{((?:\w+="[^"]*",?)+)\})? (\S+)')


def samples(broker: Broker) -> dict[str, float]:
    """Return the samples by name and labels, as they stand in the text."""
    found: dict[str, float] = {}
    kinds: dict[str, str] = {}
    text = render(broker.node).decode()
    assert text.endswith("\n")
    for line in text.splitlines():
        if line.startswith("# TYPE"):
            _, _, name, kind = line.split()
            assert name not in kinds
            kinds[name] = kind
        elif not line.startswith("# HELP"):
            matched = SAMPLE.fullmatch(line)
            assert matched, line
            name = re.sub(r"_(bucket|sum|count)$", "", matched[1])
            assert name in kinds or matched[1] in kinds, line
            key = line.rpartition(" ")[0]
            assert key not in found
            found[key] = float(matched[3])
    return found


def test_a_node_that_nobody_has_asked_anything(broker: Broker) -> None:
    assert samples(broker) == {
        'ottla_partitions{role="leader"}': 0,
        'ottla_partitions{role="follower"}': 0,
        "ottla_under_replicated_partitions": 0,
        "ottla_offline_log_directories": 0,
        "ottla_fetch_sessions": 0,
        "ottla_loop_longest_stall_seconds": 0,
    }


def test_requests_bytes_and_durations(broker: Broker) -> None:
    client = broker.connect()
    client.ask(MetadataRequest(topics=None))
    broker.clock.now_ms += 2
    client.ask(MetadataRequest(topics=None))
    found = samples(broker)
    metrics = next(iter(broker.node.pipeline.apis.values())).metrics
    assert found['ottla_requests_total{api="Metadata"}'] == 2
    assert found['ottla_request_bytes_total{api="Metadata"}'] == metrics.request_bytes
    assert found['ottla_response_bytes_total{api="Metadata"}'] == metrics.response_bytes
    name, labels = "ottla_request_duration_seconds", 'api="Metadata",phase="queue"'
    assert found[f'{name}_bucket{{{labels},le="0.0001"}}'] == 1
    assert found[f'{name}_bucket{{{labels},le="0.001"}}'] == 1
    assert found[f'{name}_bucket{{{labels},le="0.0025"}}'] == 2
    assert found[f'{name}_bucket{{{labels},le="10"}}'] == 2
    assert found[f'{name}_bucket{{{labels},le="+Inf"}}'] == 2
    assert found[f"{name}_count{{{labels}}}"] == 2
    assert found[f"{name}_sum{{{labels}}}"] == 0.002


def roles(broker: Broker) -> tuple[float, float, float]:
    found = samples(broker)
    return (
        found['ottla_partitions{role="leader"}'],
        found['ottla_partitions{role="follower"}'],
        found["ottla_under_replicated_partitions"],
    )


def test_partitions_by_role(broker: Broker) -> None:
    partition = broker.topic("a")
    broker.topic("b")
    assert roles(broker) == (2, 0, 0)
    partition.take_role(partition_image(isr=(1,)), 1)
    assert roles(broker) == (2, 0, 1)
    partition.take_role(partition_image(isr=(1, 2)), 1)
    assert roles(broker) == (2, 0, 0)
    partition.take_role(partition_image(isr=(2,), leader=2, leader_epoch=2), 1)
    assert roles(broker) == (1, 1, 0)
    broker.node.topics.remove(partition.topic.topic_id)
    partition.remove()
    assert roles(broker) == (1, 0, 0)


def test_offline_log_directories(broker: Broker) -> None:
    partition = broker.topic()
    broker.node.storage_failed(partition, OSError(EIO, "on purpose"))
    assert samples(broker)["ottla_offline_log_directories"] == 1


def test_every_api_has_its_samples(broker: Broker) -> None:
    for key, served in SERVED.items():
        broker.connect().send(filled(request_class(key), served.newest), served.newest)
        broker.node.settle()
    found = samples(broker)
    assert len([key for key in found if key.startswith("ottla_requests_total")]) == len(SERVED)
    assert all(value == 1 for key, value in found.items() if "ottla_requests_total" in key)


def test_requests_to_the_controller_have_samples_of_their_own(broker: Broker) -> None:
    broker.connect().ask(ApiVersionsRequest())
    broker.node.handle = broker.node.controller_pipeline.handle
    broker.connect().ask(ApiVersionsRequest())
    broker.connect().ask(ApiVersionsRequest())
    found = samples(broker)
    assert found['ottla_requests_total{api="ApiVersions"}'] == 1
    labels = 'api="ApiVersions",listener="controller"'
    assert found[f"ottla_requests_total{{{labels}}}"] == 2
    assert found[f"ottla_response_bytes_total{{{labels}}}"] > 20
    assert found[f'ottla_request_duration_seconds_count{{{labels},phase="total"}}'] == 2


def test_the_text_does_not_grow_with_partitions(broker: Broker) -> None:
    broker.topic()
    broker.connect().ask(produce(), 9)
    lines = render(broker.node).count(b"\n")
    for number in range(20):
        broker.topic(f"more-{number}")
    assert render(broker.node).count(b"\n") == lines
