"""The leader's role: high watermark, ISR, and those who wait for their appends."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.config.topic import LogConfig
from ottla.model.errors import ApiError, ErrorCode
from tests.support.log import NOW, batch_of
from tests.support.replication import Replica, Waiter, Watcher, image

OK = int(ErrorCode.NONE)
TWO_IN_SYNC = LogConfig(min_insync_replicas=2)


@pytest.fixture
def leader() -> Replica:
    return Replica(1, image())


def fetch(replica: Replica, follower: int, offset: int) -> None:
    replica.partition.as_leader().record_fetch(follower, offset, 0.0)


def refused(call: Callable[[], object]) -> ErrorCode:
    with pytest.raises(ApiError) as error:
        call()
    return error.value.code


# High watermark


def test_the_high_watermark_is_the_smallest_end_of_the_isr(leader: Replica) -> None:
    leader.write(10)
    assert leader.log.high_watermark == 0
    fetch(leader, 2, 7)
    assert leader.log.high_watermark == 0
    fetch(leader, 3, 4)
    assert leader.log.high_watermark == 4
    fetch(leader, 3, 10)
    assert leader.log.high_watermark == 7
    fetch(leader, 2, 10)
    assert leader.log.high_watermark == 10


def test_a_follower_outside_of_the_isr_does_not_hold_it_back() -> None:
    leader = Replica(1, image(isr=(1, 2)))
    leader.write(10)
    fetch(leader, 3, 1)
    fetch(leader, 2, 10)
    assert leader.log.high_watermark == 10


def test_alone_in_the_isr_what_is_written_is_committed() -> None:
    leader = Replica(1, image(isr=(1,)))
    leader.append(3)
    assert leader.log.high_watermark == 0
    leader.partition.as_leader().write()
    assert leader.log.high_watermark == 3


def test_the_high_watermark_never_goes_back(leader: Replica) -> None:
    leader.write(10)
    fetch(leader, 2, 8)
    fetch(leader, 3, 8)
    fetch(leader, 2, 3)
    assert leader.log.high_watermark == 8
    leader.take_role(image(leader_epoch=1))
    fetch(leader, 2, 0)
    fetch(leader, 3, 0)
    assert leader.log.high_watermark == 8


def test_what_is_only_queued_is_not_committed(leader: Replica) -> None:
    leader.write(2)
    leader.append(2)
    fetch(leader, 2, 2)
    fetch(leader, 3, 2)
    assert leader.log.high_watermark == 2


def test_an_end_past_the_leaders_is_refused(leader: Replica) -> None:
    """Otherwise records that come later would count as replicated."""
    leader.write(5)
    assert refused(lambda: fetch(leader, 2, 6)) == ErrorCode.OFFSET_OUT_OF_RANGE
    fetch(leader, 3, 5)
    leader.write(5)
    fetch(leader, 3, 10)
    assert leader.log.high_watermark == 0


def test_what_followers_had_in_an_older_epoch_does_not_count(leader: Replica) -> None:
    leader.write(5)
    fetch(leader, 2, 5)
    leader.take_role(image(leader_epoch=1))
    fetch(leader, 3, 5)
    assert leader.log.high_watermark == 0
    fetch(leader, 2, 5)
    assert leader.log.high_watermark == 5


def test_what_followers_have_outlives_a_change_of_the_isr(leader: Replica) -> None:
    leader.write(5)
    fetch(leader, 2, 5)
    leader.take_role(image(isr=(1, 2)))
    assert leader.log.high_watermark == 5


def test_watchers_hear_of_a_high_watermark_that_moves(leader: Replica) -> None:
    watcher = Watcher()
    leader.partition.watchers[watcher] = False
    leader.write(5)
    fetch(leader, 2, 5)
    assert watcher.changes == 0
    fetch(leader, 3, 5)
    assert watcher.changes == 1
    fetch(leader, 3, 5)
    assert watcher.changes == 1


Step = tuple[str, int, int]
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(1, 3), st.just(0)),
        st.tuples(st.just("fetch"), st.sampled_from([2, 3]), st.integers(0, 30)),
        st.tuples(st.just("isr"), st.integers(0, 3), st.just(0)),
        st.tuples(st.just("epoch"), st.just(0), st.just(0)),
    ),
    max_size=30,
)


@given(STEPS)
def test_the_high_watermark_moves_only_to_what_the_whole_isr_has(steps: list[Step]) -> None:
    replica, epoch = Replica(1, image()), 0
    isr: tuple[int, ...] = (1, 2, 3)
    waiters: list[tuple[int, Waiter]] = []
    for step, first, second in steps:
        before = replica.log.high_watermark
        if step == "write":
            waiter = replica.write(first)
            waiters.append((replica.log.log_end_offset, waiter))
        elif step == "fetch":
            fetch(replica, first, min(second, replica.log.written_end))
        else:
            if step == "isr":
                isr = ((1,), (1, 2), (1, 3), (1, 2, 3))[first]
            else:
                epoch += 1
            replica.take_role(image(isr=isr, leader_epoch=epoch))
        log, followers = replica.log, replica.partition.as_leader().followers
        assert before <= log.high_watermark <= log.written_end
        if log.high_watermark > before:
            ends = [followers[member].log_end_offset for member in isr if member != 1]
            assert log.high_watermark == min([log.written_end, *ends])
        for offset, waiter in waiters:
            assert waiter.codes == ([OK] if offset <= log.high_watermark else [])


# Followers


def test_a_broker_without_a_replica_is_no_follower(leader: Replica) -> None:
    leader.write()
    assert refused(lambda: fetch(leader, 4, 0)) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert refused(lambda: fetch(leader, 1, 0)) == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_the_leader_knows_when_a_follower_had_everything(leader: Replica) -> None:
    role = leader.partition.as_leader()
    leader.write(2)
    role.record_fetch(2, 1, 100.0)
    assert role.followers[2].caught_up_ms == -1
    role.record_fetch(2, 2, 200.0)
    role.record_fetch(2, 2, 300.0)
    assert role.followers[2].caught_up_ms == 300
    leader.write(1)
    role.record_fetch(2, 2, 400.0)
    assert role.followers[2].caught_up_ms == 300


def test_a_follower_keeps_up_if_it_has_what_was_there_at_its_last_fetch(leader: Replica) -> None:
    role = leader.partition.as_leader()
    leader.write(1)
    role.record_fetch(2, 0, 100.0)
    for step in range(1, 10):
        leader.write(1)
        role.record_fetch(2, step, 100.0 * (step + 1))
    assert role.followers[2].caught_up_ms == 900
    assert 2 not in role.lagging(1000.0, 300)
    role.record_fetch(2, 9, 1100.0)
    assert role.followers[2].caught_up_ms == 900


def test_a_replica_that_is_added_begins_unknown(leader: Replica) -> None:
    leader.write(2)
    fetch(leader, 2, 2)
    fetch(leader, 3, 2)
    leader.take_role(image(replicas=(1, 2), isr=(1, 2)))
    assert refused(lambda: fetch(leader, 3, 2)) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    leader.take_role(image())
    leader.write(1)
    fetch(leader, 2, 3)
    assert leader.log.high_watermark == 2


# Those who wait


def test_acks_1_waits_for_the_write_only(leader: Replica) -> None:
    waiter = leader.append(acks=1)
    assert waiter.codes == []
    leader.partition.as_leader().write()
    assert waiter.codes == [OK]
    assert waiter.waits == 0


def test_acks_all_waits_for_the_isr(leader: Replica) -> None:
    first, second = leader.append(2), leader.append(3)
    leader.partition.as_leader().write()
    assert (first.waits, second.waits) == (1, 1)
    fetch(leader, 2, 5)
    fetch(leader, 3, 2)
    assert (first.codes, second.codes) == ([OK], [])
    fetch(leader, 3, 5)
    assert (first.codes, second.codes) == ([OK], [OK])


def test_an_isr_that_shrinks_completes_who_waited_for_the_lost_member(leader: Replica) -> None:
    waiter = leader.write()
    fetch(leader, 2, 1)
    assert waiter.codes == []
    leader.take_role(image(isr=(1, 2)))
    assert waiter.codes == [OK]


def test_too_small_an_isr_refuses_before_the_append() -> None:
    leader = Replica(1, image(isr=(1,)), config=TWO_IN_SYNC)
    assert refused(leader.partition.as_leader().check_in_sync) == ErrorCode.NOT_ENOUGH_REPLICAS
    leader.take_role(image(isr=(1, 3)))
    leader.partition.as_leader().check_in_sync()


def test_an_append_of_the_brokers_own_needs_the_isr_too() -> None:
    leader = Replica(1, image(isr=(1,)), config=TWO_IN_SYNC)
    told: list[ErrorCode] = []
    role = leader.partition.as_leader()
    batch = batch_of()
    assert (
        refused(lambda: role.append_own(batch, NOW, told.append)) == ErrorCode.NOT_ENOUGH_REPLICAS
    )
    assert leader.log.log_end_offset == 0
    leader.take_role(image(isr=(1, 2)))
    assert role.append_own(batch, NOW, told.append) == 0
    role.write()
    assert told == []
    fetch(leader, 2, 1)
    assert told == [ErrorCode.NONE]


def test_min_insync_replicas_is_never_more_than_there_are_replicas() -> None:
    leader = Replica(1, image(isr=(1,), replicas=(1,)), config=TWO_IN_SYNC)
    leader.partition.as_leader().check_in_sync()
    assert leader.write().codes == [OK]


def test_an_isr_that_is_too_small_after_the_append_is_told() -> None:
    leader = Replica(1, image(), config=TWO_IN_SYNC)
    waiter = leader.write()
    leader.take_role(image(isr=(1,)))
    assert waiter.codes == [ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND]


def test_too_small_an_isr_commits_nothing() -> None:
    """An eligible leader that left the ISR before does not have what is written now (KIP-966)."""
    leader = Replica(1, image(isr=(1,)), config=TWO_IN_SYNC)
    assert leader.write(acks=1).codes == [OK]
    fetch(leader, 2, 1)
    assert leader.log.high_watermark == 0
    leader.take_role(image(isr=(1, 2)))
    assert leader.log.high_watermark == 1


def test_a_smaller_min_insync_replicas_commits_what_waited() -> None:
    leader = Replica(1, image(isr=(1,)), config=TWO_IN_SYNC)
    leader.write(acks=1)
    leader.log.reconfigure(LogConfig())
    leader.partition.as_leader().settings_changed()
    assert leader.log.high_watermark == 1


def test_an_isr_that_shrinks_between_append_and_write_is_told() -> None:
    leader = Replica(1, image(isr=(1, 2)), config=TWO_IN_SYNC)
    all_replicas, leader_only = leader.append(), leader.append(acks=1)
    leader.take_role(image(isr=(1,)))
    leader.partition.as_leader().write()
    assert all_replicas.codes == [ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND]
    assert leader_only.codes == [OK]


def test_a_leader_that_resigns_tells_who_waits(leader: Replica) -> None:
    waiter = leader.write()
    role = leader.partition.as_leader()
    leader.take_role(image(leader=2, leader_epoch=1))
    assert waiter.codes == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert leader.partition.leader is None
    role.resign()
    assert len(waiter.told) == 1


def test_a_leader_that_resigned_writes_and_moves_no_high_watermark() -> None:
    leader = Replica(1, image(isr=(1,)))
    all_replicas, leader_only = leader.append(), leader.append(acks=1)
    role = leader.partition.as_leader()
    leader.take_role(image(leader=2, isr=(1, 2), leader_epoch=1))
    role.write()
    assert all_replicas.codes == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert leader_only.codes == [OK]
    assert (leader.log.written_end, leader.log.high_watermark) == (2, 0)


def test_a_write_that_fails_is_told_once(leader: Replica) -> None:
    waiter = leader.append()
    role = leader.partition.as_leader()
    leader.log.discard_queued()
    role.refuse_unwritten(ErrorCode.KAFKA_STORAGE_ERROR, "on purpose")
    role.write()
    assert waiter.codes == [ErrorCode.KAFKA_STORAGE_ERROR]


def test_what_waits_for_a_deleted_topic_is_told(leader: Replica) -> None:
    written, queued = leader.write(), leader.append()
    role = leader.partition.as_leader()
    leader.partition.remove()
    role.write()
    assert written.codes == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert queued.codes == [OK]


# The image


def test_a_leader_outside_of_its_isr_is_an_error(leader: Replica) -> None:
    with pytest.raises(AssertionError, match="ISR"):
        leader.take_role(image(isr=(2, 3)))


def test_a_leader_epoch_that_goes_back_is_an_error(leader: Replica) -> None:
    leader.take_role(image(leader_epoch=3))
    with pytest.raises(AssertionError, match="goes back"):
        leader.take_role(image(leader_epoch=2))


def test_the_leader_epoch_of_clients_is_checked(leader: Replica) -> None:
    leader.take_role(image(leader_epoch=3))
    partition = leader.partition
    partition.check_leader_epoch(-1)
    partition.check_leader_epoch(3)
    assert refused(lambda: partition.check_leader_epoch(2)) == ErrorCode.FENCED_LEADER_EPOCH
    assert refused(lambda: partition.check_leader_epoch(4)) == ErrorCode.UNKNOWN_LEADER_EPOCH


def test_the_leaders_epoch_begins_where_the_log_ends(leader: Replica) -> None:
    partition = leader.partition
    assert partition.end_offset_for_epoch(0) == (0, 0)
    leader.write(3)
    leader.take_role(image(leader_epoch=5))
    assert partition.end_offset_for_epoch(0) == (0, 3)
    assert partition.end_offset_for_epoch(3) == (0, 3)
    assert partition.end_offset_for_epoch(5) == (5, 3)
    assert partition.end_offset_for_epoch(6) == (-1, -1)
    leader.write(2)
    assert partition.end_offset_for_epoch(3) == (0, 3)
    assert partition.end_offset_for_epoch(5) == (5, 5)


def test_the_epochs_of_an_empty_partition(leader: Replica) -> None:
    leader.take_role(image(leader_epoch=5))
    partition = leader.partition
    assert partition.end_offset_for_epoch(5) == (5, 0)
    assert partition.end_offset_for_epoch(2) == (2, 0)
    assert partition.end_offset_for_epoch(-1) == (-1, -1)
    assert partition.end_offset_for_epoch(-2) == (-2, 0)
    assert partition.end_offset_for_epoch(6) == (-1, -1)
    assert partition.epoch_for_offset(0) == 5


def test_an_epoch_before_all_others_ends_where_the_first_begins(leader: Replica) -> None:
    leader.write(3)
    assert leader.partition.end_offset_for_epoch(-2) == (-2, 0)
    assert leader.partition.epoch_for_offset(0) == 0
    leader.take_role(image(leader_epoch=5))
    assert leader.partition.epoch_for_offset(2) == 0
    assert leader.partition.epoch_for_offset(3) == 5


def test_a_follower_knows_only_the_epochs_of_its_log(leader: Replica) -> None:
    leader.write(3)
    leader.take_role(image(leader=2, leader_epoch=5))
    assert leader.partition.end_offset_for_epoch(0) == (0, 3)
    assert leader.partition.end_offset_for_epoch(5) == (-1, -1)
