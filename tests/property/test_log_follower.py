"""A leader's log, fetched in pieces of any size, becomes the same log on the follower."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.config.topic import LogConfig
from ottla.log.log import Log
from ottla.records.control import ControlType, build_marker
from ottla.records.record import build_batch
from tests.support.log import NOW, append, batch_of, new_log, reopen

CONFIG = LogConfig(segment_bytes=900, index_interval_bytes=150)
PRODUCERS = (1, 2, 3)

sizes = st.lists(st.integers(1, 2500), max_size=40)
segment_bytes = st.sampled_from((300, 900, 2000, 1 << 20))
batches = st.lists(
    st.tuples(
        st.integers(1, 4),
        st.integers(0, 120),
        st.integers(-1, 3),
        st.integers(-50, 50),
        st.booleans(),
        st.booleans(),
    ),
    max_size=40,
)


def bytes_of(log: Log) -> bytes:
    files = log.resources.files
    return b"".join(
        files.open(segment.path(".log")).pread(segment.size, 0) for segment in log.segments
    )


def replicate(leader: Log, follower: Log, fetch_sizes: list[int]) -> None:
    """Fetch until the follower has everything, as much at a time as the sizes say."""
    number = 0
    while follower.log_end_offset < leader.log_end_offset:
        wanted = fetch_sizes[number] if number < len(fetch_sizes) else 1 << 20
        number += 1
        piece = leader.read(follower.log_end_offset, wanted, leader.written_end, at_least_one=True)
        assert piece is not None
        buffer = bytearray(piece.read())
        taken = follower.append_as_follower(buffer, memoryview(buffer), 0, len(buffer), NOW)
        assert 0 < taken <= len(buffer)
        follower.write_queued()
        follower.high_watermark = follower.log_end_offset


def check_same(leader: Log, follower: Log) -> None:
    assert bytes_of(follower) == bytes_of(leader)
    assert follower.log_end_offset == leader.log_end_offset
    assert follower.leader_epochs.entries == leader.leader_epochs.entries
    assert follower.producers.entries == leader.producers.entries
    assert follower.producers.ongoing == leader.producers.ongoing
    assert follower.max_timestamp() == leader.max_timestamp()
    assert follower.last_stable_offset == leader.last_stable_offset


@settings(deadline=None)
@given(batches=batches, fetch_sizes=sizes, segment_bytes=segment_bytes)
def test_what_a_leader_appends_is_replicated(
    batches: list[tuple[int, int, int, int, bool, bool]],
    fetch_sizes: list[int],
    segment_bytes: int,
) -> None:
    leader, follower = new_log(CONFIG), new_log(CONFIG.replace(segment_bytes=segment_bytes))
    sequences, leader_epoch = dict.fromkeys(PRODUCERS, 0), 0
    for count, size, producer_id, drift, is_elected, is_written in batches:
        leader_epoch += is_elected
        sequence = sequences.get(producer_id, 0)
        batch = batch_of(
            count,
            timestamp=NOW + drift,
            value=b"x" * size,
            producer_id=producer_id if producer_id in sequences else -1,
            base_sequence=sequence,
        )
        append(leader, batch, leader_epoch=leader_epoch)
        if producer_id in sequences:
            sequences[producer_id] += count
        if is_written:
            leader.write_queued()
    leader.write_queued()
    leader.high_watermark = leader.log_end_offset
    replicate(leader, follower, fetch_sizes)
    check_same(leader, follower)
    again = reopen(follower)
    check_same(leader, again)


@settings(deadline=None)
@given(
    steps=st.lists(
        st.tuples(st.sampled_from(PRODUCERS), st.sampled_from("dca"), st.integers(0, 3)),
        max_size=40,
    ),
    fetch_sizes=sizes,
    segment_bytes=segment_bytes,
)
def test_transactions_and_gaps_are_replicated(
    steps: list[tuple[int, str, int]], fetch_sizes: list[int], segment_bytes: int
) -> None:
    content, offset = bytearray(), 0
    sequences = dict.fromkeys(PRODUCERS, 0)
    for producer_id, step, gap in steps:
        offset += gap
        if step == "d":
            content += build_batch(
                [(b"k", b"v" * 30, NOW, ())] * 2,
                base_offset=offset,
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=sequences[producer_id],
                leader_epoch=0,
                is_transactional=True,
            )
            sequences[producer_id] += 2
            offset += 2
        else:
            content += build_marker(
                ControlType.COMMIT if step == "c" else ControlType.ABORT,
                producer_id=producer_id,
                producer_epoch=0,
                coordinator_epoch=1,
                timestamp=NOW,
                base_offset=offset,
                leader_epoch=0,
            )
            offset += 1
    leader, follower = new_log(CONFIG), new_log(CONFIG.replace(segment_bytes=segment_bytes))
    leader.append_as_follower(content, memoryview(content), 0, len(content), NOW)
    leader.write_queued()
    leader.high_watermark = leader.log_end_offset
    replicate(leader, follower, fetch_sizes)
    check_same(leader, follower)
    check_same(leader, reopen(follower))
