"""What members say about themselves takes a limited amount of memory, and is given back."""

from __future__ import annotations

import gc
import tracemalloc

import pytest

from ottla.coordinator.groups import member_memory
from ottla.model.errors import ErrorCode
from ottla.wire.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from tests.support.consumer_groups import Broker as ConsumerBroker
from tests.support.consumer_groups import Consumer
from tests.support.groups import (
    DELAY_MS,
    GROUP,
    REBALANCE_MS,
    SESSION_MS,
    TOPIC,
    Broker,
    Member,
    stable_group,
    subscription,
)

LARGE = subscription(TOPIC) + bytes(300_000)


def held(broker: Broker) -> int:
    return broker.node.groups.member_memory.held


def large_member(broker: Broker, name: str, **more: object) -> Member:
    return Member(broker, name, protocols=[("range", LARGE)], **more)  # type: ignore[arg-type]


def test_members_that_leave_give_memory_back(broker: Broker) -> None:
    members = [large_member(broker, f"m{number}") for number in range(2)]
    stable_group(broker, *members)
    assert held(broker) > 600_000
    members[0].leave()
    assert 300_000 < held(broker) < 400_000
    members[1].leave()
    broker.pass_ms(REBALANCE_MS + DELAY_MS)
    assert held(broker) == broker.group().memory_bytes == 0


def test_members_that_time_out_give_memory_back(broker: Broker) -> None:
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for number in range(8):
            member = large_member(broker, f"m{number}").join()
            assert member.is_parked
            member.client.hang_up()
        del member
        assert held(broker) > 8 * 300_000
        broker.pass_ms(10 * 60 * 1000)
        assert held(broker) == 0
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
        assert after - before < 300_000
    finally:
        tracemalloc.stop()


def test_a_member_that_joins_again_with_less_gives_memory_back(broker: Broker) -> None:
    member = large_member(broker, "m")
    stable_group(broker, member)
    member.protocols = [("range", subscription(TOPIC))]
    member.join()
    assert held(broker) < 10_000


def test_ids_that_are_given_out_are_counted(broker: Broker) -> None:
    request = JoinGroupRequest(
        group_id=GROUP,
        session_timeout=SESSION_MS,
        rebalance_timeout=REBALANCE_MS,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=subscription(TOPIC))],
    )
    client = broker.connect("x" * 30_000)
    codes = set()
    for _ in range(200):
        codes.add(client.ask(request, JoinGroupResponse).error_code)
    assert codes == {ErrorCode.MEMBER_ID_REQUIRED, ErrorCode.GROUP_MAX_SIZE_REACHED}
    broker.pass_ms(SESSION_MS + 1)
    assert held(broker) == 0


def test_a_group_has_a_limit(broker: Broker) -> None:
    """40 members with 5 MB each took 200 MB."""
    code = None
    for number in range(40):
        member = large_member(broker, f"m{number}").join()
        if not member.is_parked:
            code = member.joined.error_code
            break
    assert code == ErrorCode.GROUP_MAX_SIZE_REACHED
    limit = member_memory.BATCHES_PER_GROUP * broker.shard().max_batch_bytes
    assert limit - 400_000 < held(broker) <= limit
    other = Member(broker, "other", group_id="other").join()
    assert other.is_parked


def test_small_batches_do_not_make_groups_small(broker: Broker) -> None:
    broker.shard().max_batch_bytes = 1000
    members = [Member(broker, f"m{number}").join() for number in range(20)]
    assert all(member.is_parked for member in members)


def test_all_groups_together_have_a_limit(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(member_memory, "MAX_BYTES", 1_000_000)
    members = [large_member(broker, f"m{number}", group_id=f"g{number}") for number in range(4)]
    for member in members:
        member.join()
    assert [member.is_parked for member in members] == [True, True, True, False]
    assert members[3].joined.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_groups_that_are_deleted_unloaded_and_loaded_are_counted(broker: Broker) -> None:
    stable_group(broker, large_member(broker, "m"))
    before = held(broker)
    assert before > 300_000
    broker.crash_and_restart()
    assert held(broker) == pytest.approx(before, abs=1000)
    for index in list(broker.node.groups.runtimes):
        broker.node.groups.host._unload(index)
    assert held(broker) == 0


def test_members_of_the_consumer_protocol_are_counted() -> None:
    broker = ConsumerBroker()
    names = [f"topic-{number}" for number in range(1000)]
    one, two = Consumer(broker, "one", names), Consumer(broker, "two", names)
    assert one.heartbeat() is two.heartbeat() is ErrorCode.NONE
    assert held(broker) > 100_000
    two.leave()
    assert held(broker) < 100_000
    broker.crash_and_restart()
    assert 50_000 < held(broker) < 100_000
    broker.pass_ms(60_000)
    assert held(broker) == 0


def test_a_consumer_that_takes_too_much_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(member_memory, "MAX_BYTES", 100_000)
    broker = ConsumerBroker()
    names = [f"topic-{number}" for number in range(1000)]
    assert Consumer(broker, "one", names).heartbeat() is ErrorCode.NONE
    assert Consumer(broker, "two", names).heartbeat() is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert Consumer(broker, "two").heartbeat() is ErrorCode.NONE
