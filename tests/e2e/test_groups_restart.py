"""The broker is stopped or killed while groups are at work: they go on as if nothing had been."""

from __future__ import annotations

import signal
from collections.abc import Callable
from functools import partial

import pytest

from tests.harness.background_load import Load
from tests.harness.classic import ClassicMember, commit, committed
from tests.harness.consumer_protocol import NewMember
from tests.harness.deadline import eventually
from tests.harness.group import Group, partitions_of
from tests.harness.group_broker import GROUP_SETTINGS, await_coordinator
from tests.harness.member.handle import Member
from tests.harness.member.spec import Spec
from tests.harness.process import BrokerProcess
from tests.harness.raw import RawConnection
from tests.harness.topics import create_topic

StartBroker = Callable[..., BrokerProcess]
NONE = 0
UNKNOWN_MEMBER_ID = 25
TOPIC = "work"
PARTITIONS = 6
SETTINGS = {**GROUP_SETTINGS, "group.consumer.session.timeout.ms": "10000"}

KINDS = {
    "confluent-range": ("confluent", "classic", "range"),
    "confluent-cooperative": ("confluent", "classic", "cooperative-sticky"),
    "confluent-consumer": ("confluent", "consumer", None),
    "kafka-python-range": ("kafka-python", "classic", "range"),
    "aiokafka-roundrobin": ("aiokafka", "classic", "roundrobin"),
}


def restart(broker: BrokerProcess, how: signal.Signals) -> None:
    if how == signal.SIGKILL:
        broker.kill()
    else:
        assert broker.stop(how) == 0
    broker.start()


def has_committed(count: int, member: Member) -> bool:
    """Return whether the member has committed more often than this."""
    return len(member.of_kind("committed")) > count


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "how"),
    [
        ("confluent-range", signal.SIGTERM),
        ("confluent-cooperative", signal.SIGKILL),
        ("confluent-consumer", signal.SIGTERM),
        ("confluent-consumer", signal.SIGKILL),
        ("kafka-python-range", signal.SIGKILL),
        ("aiokafka-roundrobin", signal.SIGKILL),
        ("aiokafka-roundrobin", signal.SIGTERM),
    ],
)
def test_members_keep_their_partitions_over_a_restart(
    start_broker: StartBroker, kind: str, how: signal.Signals
) -> None:
    client, protocol, assignor = KINDS[kind]
    broker = start_broker(SETTINGS)
    servers = broker.bootstrap_servers
    create_topic(servers, TOPIC, PARTITIONS)
    keys = partitions_of(TOPIC, PARTITIONS)
    spec = Spec(
        client,
        servers,
        "g",
        (TOPIC,),
        protocol=protocol,
        assignor=assignor,
        session_timeout_ms=10_000,
    )
    with Group(spec) as group, Load(servers, TOPIC, PARTITIONS) as load:
        members = group.gather(keys, 2)
        if protocol == "classic":
            # Who keeps what it has hears of a generation later than who is given something.
            eventually(lambda: len(set(map(_generation, members))) == 1, "one generation")
        had = {member.name: (member.owned, _rebalances(member)) for member in members}
        before = load.sent
        restart(broker, how)
        eventually(lambda: load.sent > before + 100, "records go on", 20.0)
        for member in members:
            seen = len(member.of_kind("committed"))
            member.wait_for(partial(has_committed, seen), "it commits again")
        assert {m.name: (m.owned, _rebalances(m)) for m in members} == had
        group.finish(load.stop(), once=True)
    assert not broker.errors


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_members_that_die_with_the_broker_are_replaced(
    start_broker: StartBroker, protocol: str
) -> None:
    broker = start_broker({**SETTINGS, "group.consumer.session.timeout.ms": "2000"})
    servers = broker.bootstrap_servers
    create_topic(servers, TOPIC, PARTITIONS)
    keys = partitions_of(TOPIC, PARTITIONS)
    spec = Spec("confluent", servers, "g", (TOPIC,), protocol=protocol, session_timeout_ms=2000)
    with Group(spec) as group, Load(servers, TOPIC, PARTITIONS) as load:
        members = group.gather(keys, 3)
        broker.kill()
        members[0].kill()
        broker.start()
        group.settle(keys, *members[1:])
        group.finish(load.stop(), once=False)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_offsets_members_and_settings_of_groups_survive(
    start_broker: StartBroker, how: signal.Signals
) -> None:
    broker = start_broker(SETTINGS)
    servers = broker.bootstrap_servers
    await_coordinator(servers)
    create_topic(servers, TOPIC, PARTITIONS)
    keys = sorted(partitions_of(TOPIC, PARTITIONS))
    with RawConnection(servers) as raw:
        for round_number in range(3):
            offsets = {key: 10 * round_number + key[1] for key in keys}
            assert set(commit(raw, "standalone", offsets).values()) == {NONE}
        member = ClassicMember(raw, "classic", instance_id="static")
        member.stable(b"mine")
        new = NewMember(raw, "consumer", [TOPIC])
        new.beat()
        new.settle(PARTITIONS)
        raw.request("delete_groups", 2, groups_names=["standalone-gone"])
        commit(raw, "gone", {keys[0]: 1})
        assert raw.request("delete_groups", 2, groups_names=["gone"]).results[0].error_code == NONE
        listed = list_of(raw)
    restart(broker, how)
    with RawConnection(servers) as raw:
        await_coordinator(servers, "classic")
        await_coordinator(servers, "consumer")
        await_coordinator(servers, "standalone")
        assert list_of(raw) == listed
        assert committed(raw, "standalone") == offsets
        assert committed(raw, "gone") == {}
        member.raw = new.raw = raw
        assert member.heartbeat() == NONE
        assert member.sync().assignment == b"mine"
        assert member.heartbeat(member_id="stranger", group_instance_id=None) == UNKNOWN_MEMBER_ID
        had = dict(new.owned)
        assert new.beat(topic_partitions=new.told()).error_code == NONE
        assert new.owned == had


@pytest.mark.slow
def test_members_that_do_not_come_back_expire_after_a_restart(start_broker: StartBroker) -> None:
    settings = {**SETTINGS, "group.consumer.session.timeout.ms": "1000"}
    broker = start_broker(settings)
    servers = broker.bootstrap_servers
    await_coordinator(servers)
    create_topic(servers, TOPIC, 1)
    with RawConnection(servers) as raw:
        ClassicMember(raw, "classic", session_timeout_ms=1000).stable()
        new = NewMember(raw, "consumer", [TOPIC])
        new.beat()
        new.settle(1)
    restart(broker, signal.SIGKILL)
    with RawConnection(servers) as raw:
        await_coordinator(servers, "classic")
        await_coordinator(servers, "consumer")
        expected = {"classic": ("Empty", "classic"), "consumer": ("Empty", "consumer")}
        eventually(lambda: list_of(raw) == expected, "both groups are empty")


def list_of(raw: RawConnection) -> dict[str, tuple[str, str]]:
    """State and type of each group."""
    found = raw.request("list_groups", 5).groups
    return {group.group_id: (group.group_state, group.group_type.lower()) for group in found}


def _generation(member: Member) -> int:
    return member.of_kind("assigned")[-1].generation


def _rebalances(member: Member) -> int:
    return len(member.of_kind("assigned")) + len(member.of_kind("revoked"))
