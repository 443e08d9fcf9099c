"""A shard and its log, with counters: answers, failed writes, compaction."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ottla.coordinator.runtime.shard_runtime import RuntimeState
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.transactions import TransactionEnd
from ottla.replication.partition import Partition
from tests.support.counter_shard import Answer, Counters


def error_of(counters: Counters) -> ErrorCode:
    with pytest.raises(ApiError) as refused:
        counters.host.runtime_of(0)
    return refused.value.code


def hold_commits(counters: Counters) -> list[Callable[[ErrorCode], None]]:
    """Let appended batches wait for their commit; return who waits to hear of it."""
    append, held = counters.node.append_internal, []

    def held_append(
        partition: Partition, batch: bytearray, done: Callable[[ErrorCode], None]
    ) -> None:
        held.append(done)
        append(partition, batch, lambda code: None)

    counters.node.append_internal = held_append  # type: ignore[method-assign]
    return held


def test_an_answer_is_sent_after_the_write(counters: Counters) -> None:
    answer = counters.add("a", 5)
    assert counters.runtime.shard.numbers == {"a": 5}
    assert answer.response is None
    assert not counters.runtime.is_settled
    counters.settle()
    assert answer.number == 5
    assert counters.runtime.is_settled


def test_a_read_waits_for_what_was_written_before_it(counters: Counters) -> None:
    counters.add("a", 5)
    read = counters.read()
    assert read.response is None
    counters.settle()
    assert read.number == 5
    assert counters.read().number == 5  # at once: there is nothing to wait for


def test_commands_of_one_wake_up_share_a_batch(counters: Counters) -> None:
    log = counters.runtime.partition.online_log()
    answers = [counters.add() for _ in range(10)]
    counters.settle()
    assert [answer.number for answer in answers] == list(range(1, 11))
    assert log.log_end_offset == 10
    assert len(log.recent.offsets) == 1


@pytest.mark.interpreted
def test_answers_wait_for_the_commit_of_their_own_batch(counters: Counters) -> None:
    held = hold_commits(counters)
    first = counters.add()
    counters.settle()
    second, read = counters.add(), counters.read()
    counters.settle()
    assert first.response is second.response is None  # written, and not committed
    held[0](ErrorCode.NONE)
    assert first.number == 1
    assert second.response is read.response is None
    held[1](ErrorCode.NONE)
    assert (second.number, read.number) == (2, 2)


def test_a_failed_write_is_undone_by_loading_again(counters: Counters) -> None:
    counters.add("a", 5)
    counters.settle()
    counters.files.fill("*.log")
    failed, parked = counters.add("a", 1), counters.park()
    counters.settle()
    assert failed.error == parked.error == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert error_of(counters) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    counters.files.heal()
    counters.pass_ms(1100)
    assert counters.runtime.shard.numbers == {"a": 5}
    again = counters.add("a", 2)
    counters.settle()
    assert again.number == 7


@pytest.mark.interpreted
def test_an_append_that_loses_its_leader_sends_clients_elsewhere(counters: Counters) -> None:
    held = hold_commits(counters)
    answer = counters.add()
    counters.settle()
    held[0](ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert answer.error == ErrorCode.NOT_COORDINATOR
    assert counters.reports == []


def test_another_leader_epoch_refuses_a_marker_as_partitions_do(counters: Counters) -> None:
    """Kafka's coordinators give up a marker that is refused with NOT_COORDINATOR."""
    counters.runtime.partition.leader_epoch += 1
    with pytest.raises(ApiError) as refused:
        counters.runtime.write_marker(TransactionEnd(7, 0, 0, True), lambda code: None)
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_another_leader_epoch_fences_the_shard(counters: Counters) -> None:
    counters.add("a", 5)
    counters.settle()
    counters.runtime.partition.leader_epoch += 1
    fenced = counters.add("a", 1)
    assert fenced.error == ErrorCode.NOT_COORDINATOR
    assert counters.state is RuntimeState.CLOSED
    counters.pass_ms(1100)
    assert counters.read().number == 5


def test_a_command_that_writes_too_much_is_refused_alone(counters: Counters) -> None:
    kept = counters.add("a", 1)
    counters.runtime.shard.max_batch_bytes = 500
    refused = counters.add("x" * 1000, 1)
    assert refused.error == ErrorCode.UNKNOWN_SERVER_ERROR
    counters.settle()
    assert kept.number == 1
    assert counters.runtime.shard.numbers == {"a": 1}


def test_a_closed_runtime_refuses_and_writes_nothing(counters: Counters) -> None:
    runtime = counters.runtime
    pending = counters.add()
    runtime.close(ErrorCode.NOT_COORDINATOR)
    assert pending.error == ErrorCode.NOT_COORDINATOR
    runtime.run(lambda: pytest.fail("a closed runtime runs no commands"))
    counters.settle()
    assert runtime.partition.online_log().log_end_offset == 0


def test_timers_run_commands(counters: Counters) -> None:
    late, shard = Answer(), counters.runtime.shard
    shard.after(50, lambda: shard.add("a", 3, late))
    counters.pass_ms(49)
    assert late.response is None
    counters.pass_ms(1)
    assert late.number == 3
