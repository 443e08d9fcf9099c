"""A node's metrics in Prometheus' text format, version 0.0.4.

Rendering costs a constant for each API that was used: no figure here is counted by walking
partitions, topics or connections. Requests on the listener of controllers have one more label,
`listener="controller"`.

`ottla_request_duration_seconds` has a phase (`request_metrics`). One in 32 requests of Produce,
Fetch and OffsetCommit is timed, and every request of the other APIs: for rates use
`ottla_requests_total`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from ottla.broker.metrics.loop_stalls import LoopStalls
from ottla.broker.metrics.metric_lines import head, metric
from ottla.broker.metrics.request_metrics import BOUNDS_MS, Histogram, RequestMetrics

if TYPE_CHECKING:
    from ottla.broker.node import Node

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

_DURATION: Final = "ottla_request_duration_seconds"
_BOUNDS: Final = (*(f"{bound / 1000:g}" for bound in BOUNDS_MS), "+Inf")


def render(node: Node) -> bytes:
    """Return the metrics of a node."""
    apis = _apis(node)
    lines = [
        *_of_node(node),
        *_of_loop(node.loop_stalls),
        *_of_cleaner(node),
        *_of_tier(node),
        *_of_requests(apis),
        *_of_durations(apis),
        "",
    ]
    return "\n".join(lines).encode()


def render_gauge(name: str, text: str, value: int) -> bytes:
    """Return one figure that is not the node's own."""
    return "\n".join((*metric(name, "gauge", text, value), "")).encode()


def _apis(node: Node) -> list[tuple[str, RequestMetrics]]:
    """Return the labels and the metrics of all APIs that were used."""
    clients, controllers = node.pipeline, node.started_controller_pipeline
    found = [(f'api="{api.name}"', api.metrics) for api in clients.apis.values()]
    if controllers is not None:
        found += [
            (f'api="{api.name}",listener="controller"', api.metrics)
            for api in controllers.apis.values()
        ]
    return sorted(found, key=lambda each: each[0])


def _of_node(node: Node) -> Iterator[str]:
    counts = node.topics.counts
    yield from head("ottla_partitions", "gauge", "Replicas on this broker, by role.")
    yield f'ottla_partitions{{role="leader"}} {counts.leaders}'
    yield f'ottla_partitions{{role="follower"}} {counts.followers}'
    yield from metric(
        "ottla_under_replicated_partitions",
        "gauge",
        "Partitions led by this broker whose ISR lacks a replica.",
        counts.under_replicated,
    )
    yield from metric(
        "ottla_offline_log_directories",
        "gauge",
        "Log directories that failed.",
        len(node.store.offline_dirs),
    )
    yield from metric(
        "ottla_fetch_sessions",
        "gauge",
        "Incremental fetch sessions in the cache.",
        len(node.fetch_sessions),
    )


def _of_loop(stalls: LoopStalls) -> Iterator[str]:
    name = "ottla_loop_stalls_total"
    yield from head(name, "counter", "Wake-ups of over 50 ms, by what held the event loop.")
    for cause, count in stalls.counts.items():
        yield f'{name}{{held_by="{cause}"}} {count}'
    name = "ottla_loop_stall_seconds_total"
    yield from head(name, "counter", "Time of these wake-ups, by what held the event loop.")
    for cause, total_ms in stalls.total_ms.items():
        yield f'{name}{{held_by="{cause}"}} {total_ms / 1000:.9g}'
    name = "ottla_loop_longest_stall_seconds"
    longest = f"{stalls.longest_ms / 1000:.9g}"
    yield from metric(name, "gauge", "The longest of these wake-ups, 0 without any.", longest)


def _of_cleaner(node: Node) -> Iterator[str]:
    """Yield the metrics of the log cleaner, if the broker has compacted logs."""
    cleaner = node.hosted_logs.cleaning.cleaner
    if cleaner is not None:
        from ottla.broker.metrics.cleaner_metrics import cleaner_lines

        yield from cleaner_lines(cleaner, node.store, node.clock.monotonic_ms())


def _of_tier(node: Node) -> Iterator[str]:
    """Yield the metrics of the remote tier, if the broker has one."""
    if node.tier is not None:
        from ottla.broker.remote_tier.tier_metrics import tier_lines

        yield from tier_lines(node.tier)


def _of_requests(apis: list[tuple[str, RequestMetrics]]) -> Iterator[str]:
    yield from head("ottla_requests_total", "counter", "Requests received, by API.")
    for labels, metrics in apis:
        yield f"ottla_requests_total{{{labels}}} {metrics.requests}"
    yield from head("ottla_request_bytes_total", "counter", "Bytes of requests, by API.")
    for labels, metrics in apis:
        yield f"ottla_request_bytes_total{{{labels}}} {metrics.request_bytes}"
    yield from head("ottla_response_bytes_total", "counter", "Bytes of responses, by API.")
    for labels, metrics in apis:
        yield f"ottla_response_bytes_total{{{labels}}} {metrics.response_bytes}"


def _of_durations(apis: list[tuple[str, RequestMetrics]]) -> Iterator[str]:
    yield from head(_DURATION, "histogram", "Time that timed requests took, by API and phase.")
    for labels, metrics in apis:
        for phase, histogram in metrics.phases().items():
            yield from _histogram(f'{labels},phase="{phase}"', histogram)


def _histogram(labels: str, histogram: Histogram) -> Iterator[str]:
    count = 0
    for bound, more in zip(_BOUNDS, histogram.buckets, strict=True):
        count += more
        yield f'{_DURATION}_bucket{{{labels},le="{bound}"}} {count}'
    yield f"{_DURATION}_sum{{{labels}}} {histogram.sum / 1000:.9g}"
    yield f"{_DURATION}_count{{{labels}}} {count}"
