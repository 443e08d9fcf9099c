"""Records of __remote_log_metadata become the state of partitions."""

from __future__ import annotations

import pytest

from ottla.broker.remote_tier.metadata_state import MetadataState
from ottla.log.state.leader_epochs import EpochEntry
from ottla.model.steps import run_to_end
from ottla.records.control import ControlType, build_marker
from ottla.records.record import build_batch
from ottla.testing.fakes import START_MS
from ottla.tiered.metadata_records import (
    MetadataRecord,
    PartitionDelete,
    PartitionDeleteState,
    RemotePartition,
    SegmentMetadata,
    SegmentState,
    SegmentUpdate,
    encode_metadata,
)

PARTITION = RemotePartition("orders", b"t" * 16, 0)
SEGMENT = SegmentMetadata(PARTITION, b"s" * 16, 0, 9, 0, 1, 0, (EpochEntry(0, 0),), 10)
FINISHED = SegmentUpdate(PARTITION, b"s" * 16, 1, 0, SegmentState.COPY_FINISHED)


class Case:
    """A state, and what it has told."""

    def __init__(self) -> None:
        self.changed: list[RemotePartition] = []
        self.reports: list[str] = []
        self.state = MetadataState(self.changed.append, self.reports.append)

    def apply(self, data: bytes) -> None:
        run_to_end(self.state.apply(data))


@pytest.fixture
def case() -> Case:
    return Case()


def batch(base_offset: int, *records: MetadataRecord | bytes) -> bytes:
    values = [each if isinstance(each, bytes) else encode_metadata(each) for each in records]
    rows = [(None, value, START_MS, ()) for value in values]
    return bytes(build_batch(rows, base_offset=base_offset))


def test_records_change_the_state_of_their_partition(case: Case) -> None:
    case.apply(batch(0, SEGMENT, FINISHED))
    assert (case.state.next_offset, case.changed) == (2, [PARTITION, PARTITION])
    assert case.state.partitions[PARTITION].size == 10


def test_records_that_were_read_before_are_skipped(case: Case) -> None:
    case.apply(batch(0, SEGMENT))
    case.apply(batch(0, SEGMENT, FINISHED))
    assert case.state.next_offset == 2
    assert len(case.changed) == 2


def test_a_batch_that_is_cut_off_is_read_again(case: Case) -> None:
    whole = batch(0, SEGMENT) + batch(1, FINISHED)
    case.apply(whole[:-1])
    assert case.state.next_offset == 1
    case.apply(batch(1, FINISHED))
    assert case.state.next_offset == 2


def test_a_partition_is_forgotten_when_its_deletion_has_ended(case: Case) -> None:
    marked, started, finished = [
        PartitionDelete(PARTITION, 1, 0, state)
        for state in (
            PartitionDeleteState.MARKED,
            PartitionDeleteState.STARTED,
            PartitionDeleteState.FINISHED,
        )
    ]
    case.apply(batch(0, SEGMENT, finished, marked, finished, started, marked))
    (segments,) = case.state.partitions.values()
    assert segments.delete_state == PartitionDeleteState.STARTED, "others came too late, or early"
    case.apply(batch(6, finished))
    assert case.state.partitions == {}


def test_what_is_not_a_record_of_the_topic_is_skipped(case: Case) -> None:
    marker = build_marker(
        ControlType.COMMIT, producer_id=7, producer_epoch=0, coordinator_epoch=0,
        timestamp=START_MS,
    )  # fmt: skip
    case.apply(bytes(marker))
    assert case.state.next_offset == 1
    case.apply(batch(1, b"\x01\x00\x00damaged", b"\x01\x09\x00of another type", SEGMENT))
    assert case.state.next_offset == 4
    assert list(case.state.partitions) == [PARTITION]
    assert len(case.reports) == 1
    assert "ignored" in case.reports[0]
