"""Load before the measurements, so that the JVM compiles hot code and memory is warm."""

from __future__ import annotations

from harness.scale import Scale
from harness.target import Target
from harness.works import LibrdkafkaConsume, LibrdkafkaProduce, OneRecordRequests, Work


def warm_up(target: Target, scale: Scale) -> None:
    """Run each kind of load for a short time, about four times `warm_up_s` in total."""
    brief = scale.for_warm_up()
    works: list[Work] = [
        OneRecordRequests("warm-up-requests", brief, connections=8),
        LibrdkafkaProduce("warm-up-produce", brief, partitions=6, record_bytes=1024),
        LibrdkafkaProduce("warm-up-small", brief, partitions=1, record_bytes=100),
        LibrdkafkaConsume("warm-up-consume", brief),
    ]
    for work in works:
        work.prepare(target)
        work.measure(target)
        work.finish(target)
