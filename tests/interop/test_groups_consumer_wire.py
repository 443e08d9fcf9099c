"""The new protocol heartbeat by heartbeat: epochs, reconciliation, fencing, refusals."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.harness.classic import ClassicMember, commit
from tests.harness.consumer_protocol import LEAVE_STATIC, NewMember, new_member_id
from tests.harness.deadline import eventually
from tests.harness.group_broker import CONSUMER_SESSION_TIMEOUT_MS, MAX_GROUP_SIZE
from tests.harness.raw import RawConnection
from tests.harness.topics import create_topic, topic_id_of

NONE = 0
UNKNOWN_TOPIC_OR_PARTITION = 3
INVALID_GROUP_ID = 24
UNKNOWN_MEMBER_ID = 25
INVALID_REQUEST = 42
GROUP_ID_NOT_FOUND = 69
GROUP_MAX_SIZE_REACHED = 81
FENCED_MEMBER_EPOCH = 110
UNRELEASED_INSTANCE_ID = 111
UNSUPPORTED_ASSIGNOR = 112
STALE_MEMBER_EPOCH = 113
INVALID_REGULAR_EXPRESSION = 128

MakeTopic = Callable[[int], str]


def test_a_first_heartbeat_joins_and_gives_everything(
    group_raw: RawConnection, group_id: str, make_group_topic: MakeTopic
) -> None:
    topic = make_group_topic(3)
    member = NewMember(group_raw, group_id, [topic])
    answer = member.beat()
    assert (answer.error_code, answer.member_id) == (NONE, member.member_id)
    assert answer.member_epoch > 0
    assert answer.heartbeat_interval.total_seconds() == 0.2
    member.settle(3)
    assert member.owned == {topic_id_of(group_raw, topic): [0, 1, 2]}
    # Nothing new: no assignment in the answer.
    quiet = member.beat()
    assert (quiet.error_code, quiet.assignment) == (NONE, None)
    assert member.leave().member_epoch == -1
    assert member.beat(member_epoch=1).error_code in (UNKNOWN_MEMBER_ID, GROUP_ID_NOT_FOUND)


def test_partitions_move_only_after_their_owner_gave_them_up(
    group_raw: RawConnection, group_id: str, make_group_topic: MakeTopic
) -> None:
    topic = make_group_topic(4)
    first = NewMember(group_raw, group_id, [topic])
    first.beat()
    first.settle(4)
    had = first.told()
    second = NewMember(group_raw, group_id, [topic])
    second.beat()
    assert second.owned == {}
    eventually(
        lambda: first.beat().error_code == NONE and sum(map(len, first.owned.values())) == 2,
        "the first is told to give two up",
    )
    kept = first.told()
    # It still says that it has them all: nothing moves.
    for _ in range(3):
        assert first.beat(topic_partitions=had).error_code == NONE
        second.beat(topic_partitions=[])
        assert second.owned == {}
    assert first.beat(topic_partitions=kept).error_code == NONE
    second.settle(2)
    both = sorted(p for m in (first, second) for parts in m.owned.values() for p in parts)
    assert both == [0, 1, 2, 3]
    assert first.beat().error_code == NONE
    assert first.epoch == second.epoch


def test_epochs_fence(group_raw: RawConnection, group_id: str, make_group_topic: MakeTopic) -> None:
    topic = make_group_topic(1)
    member = NewMember(group_raw, group_id, [topic])
    member.beat()
    member.settle(1)
    assert member.beat(member_epoch=member.epoch + 1).error_code == FENCED_MEMBER_EPOCH
    assert member.beat(member_epoch=member.epoch + 1000).error_code == FENCED_MEMBER_EPOCH
    assert member.beat(member_id=new_member_id()).error_code == UNKNOWN_MEMBER_ID
    assert member.beat().error_code == NONE


def test_commits_carry_the_epoch(
    group_raw: RawConnection, group_id: str, make_group_topic: MakeTopic
) -> None:
    key = (make_group_topic(1), 0)
    member = NewMember(group_raw, group_id, [key[0]])
    member.beat()
    member.settle(1)

    def code(epoch: int, member_id: str, version: int = 9) -> int:
        codes = commit(
            group_raw, group_id, {key: 1}, version=version, generation=epoch, member_id=member_id
        )
        return codes[key]

    assert code(member.epoch, member.member_id) == NONE
    assert code(member.epoch + 1, member.member_id) == STALE_MEMBER_EPOCH
    assert code(member.epoch, "somebody") == UNKNOWN_MEMBER_ID
    assert code(-1, "") == UNKNOWN_MEMBER_ID
    # The classic versions of the request do not know what an epoch is.
    assert code(member.epoch, member.member_id, version=8) == 35


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"group_id": ""}, INVALID_REQUEST),
        ({"member_id": ""}, INVALID_REQUEST),
        ({"rebalance_timeout": -1}, INVALID_REQUEST),
        ({"topic_partitions": None}, INVALID_REQUEST),
        ({"subscribed_topic_names": None}, INVALID_REQUEST),
        ({"instance_id": ""}, INVALID_REQUEST),
        ({"rack_id": ""}, INVALID_REQUEST),
        ({"member_epoch": -3}, INVALID_REQUEST),
        ({"member_epoch": -2}, INVALID_REQUEST),
        ({"server_assignor": "best"}, UNSUPPORTED_ASSIGNOR),
        ({"subscribed_topic_regex": "("}, INVALID_REGULAR_EXPRESSION),
    ],
)
def test_joins_that_make_no_sense_are_refused_and_leave_nothing(
    group_raw: RawConnection,
    group_id: str,
    make_group_topic: MakeTopic,
    changes: dict[str, object],
    code: int,
) -> None:
    member = NewMember(group_raw, group_id, [make_group_topic(1)])
    answer = member.beat(**changes)
    assert answer.error_code == code
    assert answer.error_message
    listed = [found.group_id for found in group_raw.request("list_groups", 4).groups]
    assert group_id not in listed


def test_a_heartbeat_to_no_group_finds_none(group_raw: RawConnection, group_id: str) -> None:
    member = NewMember(group_raw, group_id, epoch=3)
    assert member.beat().error_code in (GROUP_ID_NOT_FOUND, UNKNOWN_MEMBER_ID)


def test_a_topic_that_comes_later_is_given_then(
    group_raw: RawConnection, group_servers: str, group_id: str
) -> None:
    topic = f"t-{group_id}"
    member = NewMember(group_raw, group_id, [topic])
    assert member.beat().error_code == NONE
    assert member.owned == {}
    create_topic(group_servers, topic, 2)
    member.settle(2)


def test_a_subscription_changes_what_is_given(
    group_raw: RawConnection, group_id: str, make_group_topic: MakeTopic
) -> None:
    one, two = make_group_topic(1), make_group_topic(2)
    member = NewMember(group_raw, group_id, [one])
    member.beat()
    member.settle(1)
    member.beat(subscribed_topic_names=[two])
    member.settle(2)
    assert member.owned == {topic_id_of(group_raw, two): [0, 1]}


@pytest.mark.slow
def test_a_member_that_falls_silent_is_removed_after_its_session(
    group_raw: RawConnection, group_id: str, make_group_topic: MakeTopic
) -> None:
    topic = make_group_topic(2)
    silent = NewMember(group_raw, group_id, [topic])
    silent.beat()
    silent.settle(2)
    awake = NewMember(group_raw, group_id, [topic])
    awake.beat()

    def alone() -> bool:
        assert awake.beat(topic_partitions=awake.told()).error_code == NONE
        return sum(len(parts) for parts in awake.owned.values()) == 2

    eventually(alone, "the other is gone", 2 * CONSUMER_SESSION_TIMEOUT_MS / 1000 + 2)
    assert silent.beat().error_code == UNKNOWN_MEMBER_ID


@pytest.mark.slow
def test_a_member_that_does_not_give_up_in_time_is_removed(
    group_raw: RawConnection, group_id: str, make_group_topic: MakeTopic
) -> None:
    topic = make_group_topic(2)
    slow = NewMember(group_raw, group_id, [topic], rebalance_timeout_ms=1000)
    slow.beat()
    slow.settle(2)
    had = slow.told()
    other = NewMember(group_raw, group_id, [topic])
    other.beat()

    def removed() -> bool:
        # It is alive, and does not let go.
        code = slow.beat(topic_partitions=had).error_code
        assert other.beat(topic_partitions=other.told()).error_code == NONE
        return code in (UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH)

    eventually(removed, "it is fenced", 5.0)
    other.settle(2)


def test_a_static_member_comes_back_to_what_it_had(
    group_raw: RawConnection, group_id: str, make_group_topic: MakeTopic
) -> None:
    topic = make_group_topic(2)
    first = NewMember(group_raw, group_id, [topic], instance_id="one")
    first.beat()
    first.settle(2)
    epoch = first.epoch
    twin = NewMember(group_raw, group_id, [topic], instance_id="one")
    assert twin.beat().error_code == UNRELEASED_INSTANCE_ID
    assert first.leave(LEAVE_STATIC).member_epoch == LEAVE_STATIC
    assert twin.beat().error_code == NONE
    twin.settle(2)
    assert twin.epoch == epoch
    assert first.beat(member_epoch=epoch).error_code != NONE


def test_a_group_is_full_at_its_limit(
    group_raw: RawConnection, group_id: str, make_group_topic: MakeTopic
) -> None:
    topic = make_group_topic(1)
    members = [NewMember(group_raw, group_id, [topic]) for _ in range(MAX_GROUP_SIZE)]
    assert [member.beat().error_code for member in members] == [NONE] * MAX_GROUP_SIZE
    late = NewMember(group_raw, group_id, [topic])
    assert late.beat().error_code == GROUP_MAX_SIZE_REACHED
    assert members[0].leave().error_code == NONE
    assert late.beat().error_code == NONE


def test_the_protocols_do_not_take_each_other_for_their_own(
    group_raw: RawConnection, group_id: str, make_group_topic: MakeTopic
) -> None:
    topic = make_group_topic(1)
    member = NewMember(group_raw, group_id, [topic])
    member.beat()
    member.settle(1)
    # A classic member of a kind that is no consumer has nothing to do here.
    worker = ClassicMember(group_raw, group_id, protocol_type="connect")
    assert worker.join().error_code == 23
    stranger = ClassicMember(group_raw, group_id, member_id="x", generation=1)
    assert stranger.heartbeat() == UNKNOWN_MEMBER_ID
    (found,) = group_raw.request("describe_groups", 6, groups=[group_id]).groups
    assert found.error_code == GROUP_ID_NOT_FOUND


def test_the_session_of_one_group_is_a_config_of_its_own(
    group_raw: RawConnection, group_id: str, make_group_topic: MakeTopic
) -> None:
    answer = set_group_config(group_raw, group_id, "consumer.heartbeat.interval.ms", "450")
    assert answer == NONE
    member = NewMember(group_raw, group_id, [make_group_topic(1)])
    assert member.beat().heartbeat_interval.total_seconds() == 0.45
    assert set_group_config(group_raw, group_id, "consumer.session.timeout.ms", "10") == 40
    assert set_group_config(group_raw, group_id, "consumer.nonsense", "10") == 40
    (result,) = group_raw.request(
        "describe_configs",
        4,
        resources=[{"resource_type": 32, "resource_name": group_id, "configuration_keys": None}],
    ).results
    values = {config.name: config.value for config in result.configs}
    assert values["consumer.heartbeat.interval.ms"] == "450"
    assert values["consumer.session.timeout.ms"] == str(CONSUMER_SESSION_TIMEOUT_MS)


def set_group_config(raw: RawConnection, group: str, name: str, value: str) -> int:
    """Set a config of a group; return the code of the answer."""
    (found,) = raw.request(
        "incremental_alter_configs",
        1,
        resources=[
            {
                "resource_type": 32,
                "resource_name": group,
                "configs": [{"name": name, "config_operation": 0, "value": value}],
            }
        ],
    ).responses
    return int(found.error_code)
