"""What is told about groups: coordinators, lists with filters, descriptions, deletion."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.harness.classic import ClassicMember, assignment, commit, committed, subscription
from tests.harness.deadline import eventually
from tests.harness.group import Group, partitions_of
from tests.harness.member.spec import Spec
from tests.harness.raw import Answer, RawConnection, split_address

NONE = 0
NON_EMPTY_GROUP = 68
GROUP_ID_NOT_FOUND = 69
GROUP_KIND = 0

MakeTopic = Callable[[int], str]


@pytest.mark.parametrize("version", range(7))
def test_the_coordinator_is_the_broker(
    group_raw: RawConnection, group_servers: str, group_id: str, version: int
) -> None:
    if version < 4:
        kind = {"key_type": GROUP_KIND} if version >= 1 else {}
        answer = group_raw.request("find_coordinator", version, key=group_id, **kind)
    else:
        asked = group_raw.request(
            "find_coordinator", version, key_type=GROUP_KIND, coordinator_keys=[group_id]
        )
        (answer,) = asked.coordinators
        assert answer.key == group_id
    assert answer.error_code == NONE
    assert (answer.host, answer.port) == split_address(group_servers)


def test_coordinators_of_many_groups_at_once(group_raw: RawConnection, group_id: str) -> None:
    keys = [f"{group_id}-{number}" for number in range(100)]
    answer = group_raw.request("find_coordinator", 6, key_type=GROUP_KIND, coordinator_keys=keys)
    assert [found.key for found in answer.coordinators] == keys
    assert {found.error_code for found in answer.coordinators} == {NONE}


def test_groups_are_listed_by_state_and_type(
    group_raw: RawConnection, group_servers: str, group_id: str, make_group_topic: MakeTopic
) -> None:
    topic = make_group_topic(1)
    names = ("stable", "empty", "left", "new")
    stable, empty, left, new = (f"{group_id}-{name}" for name in names)
    ClassicMember(group_raw, stable).stable()
    commit(group_raw, empty, {(topic, 0): 1})
    gone = ClassicMember(group_raw, left, protocol_type="connect")
    gone.stable()
    assert gone.leave() == NONE
    spec = Spec("confluent", group_servers, new, (topic,), protocol="consumer")
    with Group(spec) as group:
        group.gather(partitions_of(topic, 1), 1)
        ours = {stable, empty, left, new}

        def listed(**filters: object) -> dict[str, tuple[str, str, str]]:
            answer = group_raw.request("list_groups", 5, **filters)
            assert answer.error_code == NONE
            return {
                found.group_id: (found.group_state, found.group_type, found.protocol_type)
                for found in answer.groups
                if found.group_id in ours
            }

        assert listed() == {
            stable: ("Stable", "classic", "consumer"),
            empty: ("Empty", "classic", ""),
            left: ("Empty", "classic", "connect"),
            new: ("Stable", "consumer", "consumer"),
        }
        assert listed(states_filter=["Empty"]).keys() == {empty, left}
        assert listed(states_filter=["stable", "EMPTY"]).keys() == ours
        assert listed(types_filter=["consumer"]).keys() == {new}
        assert listed(types_filter=["Classic"], states_filter=["Stable"]).keys() == {stable}
        assert listed(states_filter=["Dead"]) == {}
        assert listed(states_filter=["Nonsense"]) == {}
        assert listed(types_filter=["nonsense"]) == {}


@pytest.mark.parametrize("version", range(5))
def test_old_versions_list_what_they_have(
    group_raw: RawConnection, group_id: str, version: int
) -> None:
    ClassicMember(group_raw, group_id).stable()
    answer = group_raw.request("list_groups", version)
    (found,) = [each for each in answer.groups if each.group_id == group_id]
    assert found.protocol_type == "consumer"
    assert getattr(found, "group_state", "Stable") == "Stable"


@pytest.mark.parametrize("version", range(7))
def test_a_classic_group_is_described(
    group_raw: RawConnection, group_id: str, make_group_topic: MakeTopic, version: int
) -> None:
    topic = make_group_topic(2)
    mine, wish = assignment(topic, 0, 1), subscription(topic)
    member = ClassicMember(group_raw, group_id, protocols=(("range", wish),), instance_id="i")
    member.stable(mine)
    found = described(group_raw, group_id, version)
    assert (found.error_code, found.group_state) == (NONE, "Stable")
    assert (found.protocol_type, found.protocol_data) == ("consumer", "range")
    (who,) = found.members
    assert (who.member_id, who.client_id) == (member.member_id, "raw")
    assert who.client_host.lstrip("/") == "127.0.0.1"
    assert (who.member_metadata, who.member_assignment) == (wish, mine)
    if version >= 4:
        assert who.group_instance_id == "i"
    member.leave()


def test_states_of_a_group_as_it_rebalances(group_servers: str, group_id: str) -> None:
    with RawConnection(group_servers) as watcher, RawConnection(group_servers) as raw:
        member = ClassicMember(raw, group_id)
        member.join()
        found = described(watcher, group_id)
        assert (found.group_state, found.protocol_data) == ("CompletingRebalance", "")
        assert [who.member_metadata for who in found.members] == [b""]
        member.sync({member.member_id: b"x"})
        assert described(watcher, group_id).group_state == "Stable"
        with RawConnection(group_servers) as second:
            other = ClassicMember(second, group_id)
            other.receive_join(other.send_join())
            other.send_join()
            eventually_state(watcher, group_id, "PreparingRebalance")
        member.leave()


def test_a_group_that_is_not_there_is_described_as_such(
    group_raw: RawConnection, group_id: str
) -> None:
    dead = described(group_raw, group_id, 5)
    assert (dead.error_code, dead.group_state, len(dead.members)) == (NONE, "Dead", 0)
    missing = described(group_raw, group_id, 6)
    assert missing.error_code == GROUP_ID_NOT_FOUND
    assert missing.error_message
    (new,) = group_raw.request("consumer_group_describe", 0, group_ids=[group_id]).groups
    assert new.error_code == GROUP_ID_NOT_FOUND


def test_only_empty_groups_are_deleted(
    group_raw: RawConnection, group_id: str, make_group_topic: MakeTopic
) -> None:
    topic = make_group_topic(1)
    active, empty = f"{group_id}-active", f"{group_id}-empty"
    member = ClassicMember(group_raw, active)
    member.stable()
    commit(group_raw, empty, {(topic, 0): 9})
    answer = group_raw.request("delete_groups", 2, groups_names=[active, empty, f"{group_id}-none"])
    assert {found.group_id: found.error_code for found in answer.results} == {
        active: NON_EMPTY_GROUP,
        empty: NONE,
        f"{group_id}-none": GROUP_ID_NOT_FOUND,
    }
    assert committed(group_raw, empty) == {}
    member.leave()
    (again,) = group_raw.request("delete_groups", 1, groups_names=[active]).results
    assert again.error_code == NONE
    assert described(group_raw, active, 5).group_state == "Dead"
    assert member.heartbeat() != NONE


@pytest.mark.parametrize("version", [0, 1])
def test_a_group_of_the_new_protocol_is_described(
    group_raw: RawConnection,
    group_servers: str,
    group_id: str,
    make_group_topic: MakeTopic,
    version: int,
) -> None:
    topic = make_group_topic(3)
    spec = Spec("confluent", group_servers, group_id, (topic,), protocol="consumer")
    with Group(spec) as group:
        group.gather(partitions_of(topic, 3), 2)
        request = {"group_ids": [group_id]}
        (found,) = group_raw.request("consumer_group_describe", version, **request).groups
        assert (found.error_code, found.group_state) == (NONE, "Stable")
        assert found.assignor_name == "uniform"
        assert found.group_epoch == found.assignment_epoch
        assert sorted(who.client_id for who in found.members) == ["m0", "m1"]
        given = sorted(
            (part.topic_name, number)
            for who in found.members
            for part in who.assignment.topic_partitions
            for number in part.partitions
        )
        assert given == sorted(partitions_of(topic, 3))
        for who in found.members:
            assert who.assignment == who.target_assignment
            assert list(who.subscribed_topic_names) == [topic]
            assert who.member_epoch == found.group_epoch
        (answer,) = group_raw.request("delete_groups", 2, groups_names=[group_id]).results
        assert answer.error_code == NON_EMPTY_GROUP
        for member in group.members:
            member.stop()
    (answer,) = group_raw.request("delete_groups", 2, groups_names=[group_id]).results
    assert answer.error_code == NONE


def described(raw: RawConnection, group: str, version: int = 5) -> Answer:
    """Return the description of one group in the words of the classic protocol."""
    (found,) = raw.request("describe_groups", version, groups=[group]).groups
    assert found.group_id == group
    return Answer(found)


def eventually_state(raw: RawConnection, group: str, state: str) -> None:
    eventually(lambda: described(raw, group).group_state == state, f"{group} is {state}")
