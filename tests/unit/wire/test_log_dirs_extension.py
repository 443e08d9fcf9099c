"""DescribeLogDirs with our tagged fields is DescribeLogDirs for everybody else."""

from __future__ import annotations

import pytest

from ottla.wire.codec import decoder, encoder
from ottla.wire.log_dirs_extension import (
    UNKNOWN,
    LogDirsPartition,
    LogDirsRequest,
    LogDirsResponse,
    LogDirsResult,
    LogDirsTopic,
    SegmentState,
)
from ottla.wire.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)

VERSIONS = range(DescribeLogDirsRequest.MIN_VERSION, DescribeLogDirsRequest.MAX_VERSION + 1)


def response() -> LogDirsResponse:
    log = LogDirsPartition(
        partition_index=3,
        partition_size=700,
        first_dirty_offset=50,
        clean_bytes=100,
        cleanable_bytes=400,
        last_clean_ms=9,
        uncleanable_reason="it is damaged",
        segments=[SegmentState(base_offset=0, size=500), SegmentState(base_offset=60, size=200)],
        remote_bytes=12_345,
        remote_first_dirty_offset=9_876,
    )
    topic = LogDirsTopic(name="t", partitions=[log, LogDirsPartition(partition_index=4)])
    return LogDirsResponse(results=[LogDirsResult(log_dir="/d", topics=[topic], usable_bytes=8)])


@pytest.mark.parametrize("version", VERSIONS)
def test_a_client_that_does_not_know_the_fields_skips_them(version: int) -> None:
    body = encoder(LogDirsResponse, version)(response())
    found, end = decoder(DescribeLogDirsResponse, version)(body, 0, len(body))
    assert end == len(body)
    (partition, other) = found.results[0].topics[0].partitions
    assert (partition.partition_index, partition.partition_size) == (3, 700)
    assert other.partition_index == 4


@pytest.mark.parametrize("version", VERSIONS)
def test_our_client_reads_them_from_version_2_on(version: int) -> None:
    body = encoder(LogDirsResponse, version)(response())
    found = decoder(LogDirsResponse, version)(body, 0, len(body))[0].results[0].topics[0]
    partition, other = found.partitions
    assert isinstance(partition, LogDirsPartition)
    assert isinstance(other, LogDirsPartition)
    assert other.first_dirty_offset == UNKNOWN
    assert other.segments is None
    if version == 1:
        assert partition.first_dirty_offset == UNKNOWN
    else:
        assert partition == response().results[0].topics[0].partitions[0]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_broker_that_does_not_know_the_request_field_skips_it(version: int) -> None:
    asked = [DescribableLogDirTopic(topic="t", partitions=[1])]
    body = encoder(LogDirsRequest, version)(LogDirsRequest(topics=asked, with_segments=True))
    found = decoder(DescribeLogDirsRequest, version)(body, 0, len(body))[0]
    assert found.topics == asked
    ours = decoder(LogDirsRequest, version)(body, 0, len(body))[0]
    assert ours.with_segments is (version > 1)
