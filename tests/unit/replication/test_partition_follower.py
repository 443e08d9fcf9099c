"""The follower's role: the leader's bytes, its high watermark, and tails that are cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.config.topic import LogConfig
from ottla.model.errors import ApiError, ErrorCode
from ottla.records.batch import scan
from ottla.replication.replica_fetcher import FollowedPartition
from tests.support.log import NOW, reopen
from tests.support.replication import Replica, Watcher, image

SMALL_SEGMENTS = LogConfig(segment_bytes=400, index_interval_bytes=100)


@pytest.fixture
def leader() -> Replica:
    return Replica(1, image(), config=SMALL_SEGMENTS)


@pytest.fixture
def follower() -> Replica:
    return Replica(2, image(), config=SMALL_SEGMENTS)


def replicate(leader: Replica, follower: Replica, *, max_bytes: int = 300) -> int:
    """Fetch until the follower has what the leader has; return how often the log was cut.

    The leader answers like the Fetch handler: with where epochs diverge, or with records.
    """
    cuts = 0
    role = leader.partition.as_leader()
    for _ in range(1000):
        log, source = follower.log, leader.log
        offset, epoch = log.log_end_offset, follower.follower.last_fetched_epoch
        if epoch >= 0:
            found, end = leader.partition.end_offset_for_epoch(epoch)
            if found < epoch or end < offset:
                before = follower.content()
                follower.follower.truncate(found, end)
                check_cut(leader, before, follower)
                cuts += 1
                continue
        role.record_fetch(follower.broker_id, offset, 0.0)
        part = source.read(offset, max_bytes, source.written_end, at_least_one=True)
        high_watermark = source.high_watermark
        if part is not None:
            buffer = bytearray(part.file.pread(part.length, part.position))
            follower.follower.append(buffer, memoryview(buffer), 0, len(buffer), NOW)
            follower.follower.write()
        follower.follower.follow_leader(high_watermark, source.log_start_offset)
        if part is None:
            return cuts
    raise AssertionError("the follower does not reach the leader's end")


def check_cut(leader: Replica, before: bytes, follower: Replica) -> None:
    """Check that no batch was cut that the leader has."""
    kept = len(follower.content())
    cut = next(scan(memoryview(before), kept, len(before)), None)
    if cut is not None:
        assert before[kept : cut.end] != leader.content()[kept : cut.end]


def test_a_follower_has_the_leaders_bytes(leader: Replica, follower: Replica) -> None:
    for number in range(20):
        leader.write(1 + number % 3, value=b"v" * number)
        if number == 10:
            leader.take_role(image(leader_epoch=1))
            follower.take_role(image(leader_epoch=1))
    assert replicate(leader, follower) == 0
    assert follower.content() == leader.content()
    assert follower.log.log_end_offset == leader.log.log_end_offset
    assert follower.log.leader_epochs.entries == leader.log.leader_epochs.entries
    assert len(follower.log.segments.base_offsets) > 1
    reopened = reopen(follower.log)
    assert reopened.log_end_offset == leader.log.log_end_offset


def test_the_high_watermark_follows_the_leaders(leader: Replica, follower: Replica) -> None:
    other = Replica(3, image(), config=SMALL_SEGMENTS)
    leader.write(5)
    replicate(leader, follower)
    assert (leader.log.high_watermark, follower.log.high_watermark) == (0, 0)
    replicate(leader, other)
    assert (leader.log.high_watermark, other.log.high_watermark) == (5, 5)
    watcher = Watcher()
    follower.partition.watchers[watcher] = False
    replicate(leader, follower)
    assert follower.log.high_watermark == 5
    assert watcher.changes == 1
    replicate(leader, follower)
    assert watcher.changes == 1


def test_the_high_watermark_reaches_only_to_the_end_of_what_is_written(follower: Replica) -> None:
    follower.follower.follow_leader(100, 0)
    assert follower.log.high_watermark == 0


def test_the_high_watermark_does_not_follow_a_new_leaders_back(
    leader: Replica, follower: Replica
) -> None:
    leader.write(5)
    replicate(leader, follower)
    follower.follower.follow_leader(5, 0)
    follower.follower.follow_leader(2, 0)
    assert follower.log.high_watermark == 5


def test_the_log_start_offset_follows_the_leaders(leader: Replica, follower: Replica) -> None:
    for _ in range(5):
        leader.write()
    replicate(leader, follower)
    follower.follower.follow_leader(4, 3)
    assert follower.log.log_start_offset == 3
    follower.follower.follow_leader(4, 5)
    assert follower.log.log_start_offset == 4, "not past the high watermark"
    follower.follower.follow_leader(5, 1)
    assert follower.log.log_start_offset == 4


def test_batches_that_do_not_follow_are_refused(leader: Replica, follower: Replica) -> None:
    leader.write(2)
    leader.write(2)
    buffer = bytearray(leader.content())
    view = memoryview(buffer)
    role = follower.follower
    assert role.append(buffer, view, 0, len(buffer), NOW) == len(buffer)
    role.write()
    with pytest.raises(ApiError) as error:
        role.append(buffer, view, 0, len(buffer), NOW)
    assert error.value.code == ErrorCode.CORRUPT_MESSAGE
    assert follower.log.log_end_offset == 4


def test_while_the_directory_is_offline_nothing_is_appended(follower: Replica) -> None:
    follower.partition.log = None
    with pytest.raises(ApiError) as error:
        follower.follower.append(bytearray(), memoryview(b""), 0, 0, NOW)
    assert error.value.code == ErrorCode.KAFKA_STORAGE_ERROR


# Tails that are cut


def change_leader(old: Replica, new: Replica, leader_epoch: int) -> None:
    role = image(leader=new.broker_id, leader_epoch=leader_epoch)
    old.take_role(role)
    new.take_role(role)


def test_a_tail_that_only_the_old_leader_has_is_cut(leader: Replica, follower: Replica) -> None:
    leader.write(3, value=b"both")
    replicate(leader, follower)
    leader.write(2, value=b"lost")
    change_leader(leader, follower, 1)
    follower.write(1, value=b"new")
    assert replicate(follower, leader) == 1
    assert leader.content() == follower.content()
    assert leader.log.log_end_offset == 4
    assert leader.log.leader_epochs.entries == follower.log.leader_epochs.entries


def test_a_tail_is_cut_before_the_new_leader_has_written(
    leader: Replica, follower: Replica
) -> None:
    leader.write(3)
    replicate(leader, follower)
    leader.write(2)
    change_leader(leader, follower, 1)
    assert replicate(follower, leader) == 1
    assert leader.log.log_end_offset == 3
    assert leader.content() == follower.content()


def test_a_tail_of_an_epoch_that_the_leader_does_not_know_is_cut(
    leader: Replica, follower: Replica
) -> None:
    leader.write(3)
    replicate(leader, follower)
    change_leader(leader, follower, 1)
    follower.write(2, value=b"epoch 1")
    change_leader(follower, leader, 2)
    leader.write(4, value=b"epoch 2")
    assert replicate(leader, follower) == 1
    assert follower.content() == leader.content()


def test_a_leader_that_has_written_nothing_cuts_only_what_it_lacks(
    leader: Replica, follower: Replica
) -> None:
    leader.write(3)
    replicate(leader, follower)
    change_leader(leader, follower, 1)
    follower.write(2, value=b"epoch 1")
    change_leader(follower, leader, 2)
    assert replicate(leader, follower) == 1
    assert follower.log.log_end_offset == 3
    assert follower.content() == leader.content()


def test_the_high_watermark_goes_back_only_where_the_log_is_cut(
    leader: Replica, follower: Replica
) -> None:
    leader.write(3)
    replicate(leader, follower)
    follower.follower.follow_leader(3, 0)
    assert follower.follower.truncate(0, 2) == 2
    assert follower.log.high_watermark == 2


def test_a_cut_that_is_not_needed_changes_nothing(leader: Replica, follower: Replica) -> None:
    leader.write(3)
    replicate(leader, follower)
    assert follower.follower.truncate(0, 9) == 3
    assert follower.follower.truncate(0, 3) == 3
    assert follower.content() == leader.content()


def test_without_an_epoch_in_common_nothing_is_kept(leader: Replica, follower: Replica) -> None:
    leader.write(3)
    replicate(leader, follower)
    assert follower.follower.truncate(-1, -1) == 0
    assert follower.content() == b""


def test_a_follower_that_is_out_of_range_begins_again(leader: Replica, follower: Replica) -> None:
    leader.write(3)
    replicate(leader, follower)
    watcher = Watcher()
    follower.partition.watchers[watcher] = False
    follower.follower.restart_at(50)
    log = follower.log
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (50, 50, 50)
    assert follower.follower.last_fetched_epoch == -1
    assert watcher.changes == 1


@given(
    st.lists(
        st.tuples(st.sampled_from([1, 2, 3]), st.integers(0, 3), st.integers(0, 3)), max_size=8
    )
)
def test_replicas_agree_after_any_elections(terms: list[tuple[int, int, int]]) -> None:
    """Each term: a leader, batches that are replicated, batches that only the leader has."""
    replicas = {number: Replica(number, image(), config=SMALL_SEGMENTS) for number in (1, 2, 3)}
    for epoch, (chosen, shared, own) in enumerate(terms, 1):
        role = image(leader=chosen, leader_epoch=epoch)
        for replica in replicas.values():
            replica.take_role(role)
        leader = replicas[chosen]
        for count in range(shared):
            leader.write(1 + count, value=b"%d" % epoch)
        for number, replica in replicas.items():
            if number != chosen:
                replicate(leader, replica)
                assert replica.content() == leader.content()
                assert replica.log.leader_epochs.entries == leader.log.leader_epochs.entries
        for count in range(own):
            leader.write(1 + count, value=b"only here, %d" % epoch)
        for replica in replicas.values():
            assert replica.log.high_watermark <= replica.log.written_end


def test_what_was_fetched_is_written_by_a_follower_that_has_become_the_leader(
    leader: Replica, follower: Replica
) -> None:
    """Both may happen in one wake-up. The buffer is used again in the next one."""
    leader.write(3, value=b"fetched")
    buffer = bytearray(leader.content())
    followed = FollowedPartition(follower.partition)
    follower.follower.append(buffer, memoryview(buffer), 0, len(buffer), NOW)
    follower.take_role(image(leader=2, leader_epoch=1))
    followed.write()
    buffer[:] = bytes(len(buffer))
    follower.write(value=b"produced")
    assert follower.content().startswith(leader.content())
    batches = list(scan(follower.content(), 0, len(follower.content())))
    assert [batch.base_offset for batch in batches] == [0, 3]
