"""Kafka's own code reads our records of `__remote_log_metadata`, and writes the same bytes."""

from __future__ import annotations

import subprocess
from hashlib import sha256
from pathlib import Path

import pytest
from java_programs import compile_source, java_command

from harness.jars import kafka_jars
from ottla.log.state.leader_epochs import EpochEntry
from ottla.tiered.metadata_records import (
    MetadataRecord,
    PartitionDelete,
    PartitionDeleteState,
    RemotePartition,
    SegmentMetadata,
    SegmentState,
    SegmentUpdate,
    decode_metadata,
    encode_metadata,
    metadata_partition,
)

pytestmark = pytest.mark.timeout(120)
PARTITION = RemotePartition("orders", bytes(range(16)), 3)
SEGMENT = SegmentMetadata(
    PARTITION,
    bytes(range(16, 32)),
    start_offset=1000,
    end_offset=2999,
    max_timestamp_ms=1_700_000_000_000,
    broker_id=2,
    event_timestamp_ms=1_700_000_000_500,
    leader_epochs=(EpochEntry(0, 1000), EpochEntry(4, 1500)),
    size=123_456,
)
RECORDS: tuple[MetadataRecord, ...] = (
    SEGMENT,
    SEGMENT._replace(has_aborted=False),
    SEGMENT._replace(clean_upto=5000, replaces=(bytes(16), bytes(range(16)))),
    *(
        SegmentUpdate(PARTITION, SEGMENT.segment_id, 1, 1_700_000_001_000, state)
        for state in SegmentState
        if state is not SegmentState.COPY_STARTED
    ),
    *(PartitionDelete(PARTITION, 1, 1_700_000_001_000, state) for state in PartitionDeleteState),
    *(
        SEGMENT._replace(
            partition=RemotePartition("t", sha256(b"%d" % number).digest()[:16], number)
        )
        for number in range(100)
    ),
)


@pytest.fixture(autouse=True)
def _needs_kafka(kafka_tool: object) -> None:
    """Skip without the jars of Kafka."""


def test_kafka_reads_and_writes_the_same_records(tmp_path: Path) -> None:
    jars, _ = kafka_jars(None)
    compile_source("RemoteMetadata", jars, tmp_path)
    encoded = [encode_metadata(record) for record in RECORDS]
    done = subprocess.run(
        java_command("RemoteMetadata", class_path=f"{tmp_path}:{jars}/*"),
        input="".join(f"{value.hex()}\n" for value in encoded),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == len(RECORDS)
    for record, ours, line in zip(RECORDS, encoded, lines, strict=True):
        theirs, partition, text = line.split(" ", 2)
        assert theirs == ours.hex(), text
        assert decode_metadata(bytes.fromhex(theirs)) == record
        of = record.partition
        assert metadata_partition(of.topic_id, of.partition, 50) == int(partition)
    assert "startOffset=1000, endOffset=2999" in lines[0]
    assert lines[0].endswith("isTxnIdxEmpty=false")
    assert lines[1].endswith("isTxnIdxEmpty=true")
