"""A shard and its log: loading, failed writes, answers that wait."""

from __future__ import annotations

from struct import pack
from typing import Any

import pytest

from ottla.coordinator.groups.record_serde import encode
from ottla.coordinator.groups.records import GroupMetadataKey, OffsetCommitKey, OffsetCommitValue
from ottla.coordinator.runtime.shard_runtime import RuntimeState
from ottla.metadata.records import PartitionChangeRecord, RemoveTopicRecord
from ottla.model.errors import ErrorCode
from ottla.model.ids import OFFSETS_TOPIC
from ottla.records.record import NewRecord, build_batch
from ottla.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from ottla.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.messages.join_group import JoinGroupResponse
from ottla.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from ottla.wire.messages.offset_commit import OffsetCommitResponse
from ottla.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)
from ottla.wire.messages.sync_group import SyncGroupResponse
from tests.support.groups import (
    DELAY_MS,
    GROUP,
    TOPIC,
    Broker,
    Member,
    commit,
    commit_request,
    fetch,
    stable_group,
    sync_all,
)


class Kafka:
    """Writes to the offsets log as another broker may have left it, before a restart."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        log = broker.log
        self.offset, self.position = log.log_end_offset, log.active.size
        self.path = f"{log.directory}/{0:020}.log"

    def write(self, *records: NewRecord, **fields: Any) -> None:
        batch = build_batch(records, base_offset=self.offset, leader_epoch=0, **fields)
        file = self.broker.files.open(self.path, writable=True)
        file.pwritev([batch], self.position)
        file.close()
        self.offset += len(records)
        self.position += len(batch)

    def write_transactional(self, producer_id: int, *records: NewRecord) -> None:
        self.write(
            *records,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=0,
            is_transactional=True,
        )

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        marker = (pack(">hh", 0, committed), pack(">hi", 0, 0), 0, ())
        self.write(
            marker,
            producer_id=producer_id,
            producer_epoch=0,
            is_transactional=True,
            is_control=True,
        )


def a_commit(partition: int, offset: int) -> NewRecord:
    key = OffsetCommitKey(group=GROUP, topic=TOPIC, partition=partition)
    return (*encode((key, OffsetCommitValue(offset=offset))), 0, ())


# -- loading --------------------------------------------------------------------------------


def test_requests_hear_that_the_shard_is_being_loaded(broker: Broker) -> None:
    member = Member(broker)
    stable_group(broker, member)
    member.commit(1)
    broker.clients.clear()
    broker.start_without_loading()
    loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    client = broker.connect()
    assert commit(client, {(TOPIC, 0): 9}) == [loading]
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=GROUP, topics=None)])
    assert client.ask(request, OffsetFetchResponse, 9).groups[0].error_code == loading
    old = OffsetFetchRequest(
        group_id=GROUP, topics=[OffsetFetchRequestTopic(name=TOPIC, partition_indexes=[0])]
    )
    for version in (2, 5):  # aiokafka looks at the partitions only
        answer = client.ask(old, OffsetFetchResponse, version)
        assert answer.error_code == answer.topics[0].partitions[0].error_code == loading
    newer = client.ask(old, OffsetFetchResponse, 7)
    assert (newer.error_code, newer.topics) == (loading, [])
    oldest = client.ask(old, OffsetFetchResponse, 1)
    assert oldest.topics[0].partitions[0].error_code == loading
    assert client.ask(ListGroupsRequest(), ListGroupsResponse).error_code == loading
    described = client.ask(DescribeGroupsRequest(groups=[GROUP]), DescribeGroupsResponse)
    assert described.groups[0].error_code == loading
    beat = HeartbeatRequest(group_id=GROUP, generation_id=1, member_id=member.member_id)
    assert client.ask(beat, HeartbeatResponse).error_code == ErrorCode.NONE
    member.client = client
    assert member.join().joined.error_code == loading
    broker.pass_ms(10)
    assert fetch(client) == {(TOPIC, 0): 1}


def test_a_large_shard_is_loaded_in_pieces() -> None:
    broker = Broker()
    client = broker.connect()
    for offset in range(800):
        commit(client, {(TOPIC, offset % 8): offset})
    broker.clients.clear()
    broker.start_without_loading()
    runtime = broker.node.groups.runtimes[0]
    steps = 0
    while runtime.state is RuntimeState.LOADING:
        broker.clock.now_ms += 1
        broker.node.advance()
        steps += 1
        assert steps < 1000
    assert steps > 3
    assert fetch(broker.connect()) == {(TOPIC, i): 792 + i for i in range(8)}


def test_records_of_unknown_kinds_and_damaged_ones_are_passed_over(broker: Broker) -> None:
    client = broker.connect()
    commit(client, {(TOPIC, 0): 1})
    group_key, _ = encode((GroupMetadataKey(group=GROUP), None))
    Kafka(broker).write(
        (b"\0\x0bwhatever", b"\0\0", 0, ()),
        (b"\x7f\xffnewer", b"\0\0", 0, ()),
        (b"", b"", 0, ()),
        (group_key, b"\0\x63", 0, ()),
        (group_key, b"\0\3\0", 0, ()),
        a_commit(1, 2),
    )
    broker.crash_and_restart()
    assert fetch(broker.connect()) == {(TOPIC, 0): 1, (TOPIC, 1): 2}
    assert sum("was skipped" in report for report in broker.reports) == 3


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
def test_a_coordinator_may_compress(codec: int) -> None:
    broker = Broker(offsets_topic_compression_codec=str(codec))
    commit(broker.connect(), {(TOPIC, i): i for i in range(8)})
    broker.crash_and_restart()
    assert fetch(broker.connect()) == {(TOPIC, i): i for i in range(8)}


def test_commits_in_transactions_count_when_their_marker_says_so(broker: Broker) -> None:
    commit(broker.connect(), {(TOPIC, i): 0 for i in range(4)})
    kafka = Kafka(broker)
    kafka.write_transactional(1, a_commit(0, 10), a_commit(1, 10))
    kafka.write_transactional(2, a_commit(2, 20), a_commit(3, 20), a_commit(0, 20))
    kafka.write(a_commit(1, 15))  # outside, and later than producer 1's
    kafka.write_transactional(3, a_commit(4, 30))
    kafka.end_transaction(2, committed=True)
    kafka.end_transaction(1, committed=True)
    kafka.end_transaction(3, committed=False)
    kafka.write_transactional(4, a_commit(5, 40))
    broker.crash_and_restart()
    client = broker.connect()
    assert fetch(client) == {
        (TOPIC, 0): 20,  # producer 2's commit is the later one, though its marker came first
        (TOPIC, 1): 15,
        (TOPIC, 2): 20,
        (TOPIC, 3): 20,
    }
    request = OffsetFetchRequest(
        group_id=GROUP, topics=[OffsetFetchRequestTopic(name=TOPIC, partition_indexes=[0, 5])]
    )
    request.require_stable = True
    stable, unstable = client.ask(request, OffsetFetchResponse, 7).topics[0].partitions
    assert (stable.committed_offset, stable.error_code) == (20, ErrorCode.NONE)
    assert unstable.error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT
    commit(client, {(TOPIC, 5): 50})
    assert client.ask(request, OffsetFetchResponse, 7).topics[0].partitions[1].error_code == 0


# -- failures -------------------------------------------------------------------------------


def test_a_full_disk_refuses_commits_and_takes_nothing_back_later(broker: Broker) -> None:
    client = broker.connect()
    assert commit(client, {(TOPIC, 0): 1}) == [0]
    broker.files.fill("*.log")
    assert commit(client, {(TOPIC, 0): 2}) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert commit(client, {(TOPIC, 0): 3}) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    broker.files.heal()
    broker.pass_ms(1100)
    assert fetch(client) == {(TOPIC, 0): 1}
    assert commit(client, {(TOPIC, 0): 4}) == [0]


def test_everybody_in_the_same_write_is_refused(broker: Broker) -> None:
    clients = [broker.connect() for _ in range(3)]
    fetching = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=GROUP, topics=None)])
    broker.files.fill("*.log")
    pending = [
        clients[0].queue(commit_request({(TOPIC, 0): 1}), 9),
        clients[1].queue(commit_request({(TOPIC, 1): 1}), 9),
        clients[2].queue(fetching, 9),
    ]
    broker.settle()
    for one in pending[:2]:
        (topic,) = one.of(OffsetCommitResponse).topics
        assert topic.partitions[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    (group,) = pending[2].of(OffsetFetchResponse).groups
    assert (group.group_id, group.error_code) == (GROUP, ErrorCode.NOT_COORDINATOR)


def test_commits_that_a_client_pipelines_share_a_batch(broker: Broker) -> None:
    client = broker.connect()
    assert commit(client, {(TOPIC, 0): 1}) == [0]
    log = broker.node.groups.runtime_of(GROUP).partition.online_log()
    before = len(log.recent.offsets)
    fetching = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=GROUP, topics=None)])
    pending = [client.queue(commit_request({(TOPIC, 0): 2 + n}), 8 + n % 2) for n in range(5)]
    fetched = client.queue(fetching, 9)
    broker.settle()
    for one in pending:
        assert one.of(OffsetCommitResponse).topics[0].partitions[0].error_code == ErrorCode.NONE
    (group,) = fetched.of(OffsetFetchResponse).groups
    assert group.topics[0].partitions[0].committed_offset == 6
    assert len(log.recent.offsets) == before + 1


def test_commits_that_a_client_pipelines_fail_together_with_their_batch(broker: Broker) -> None:
    client, gone = broker.connect(), broker.connect()
    broker.files.fill("*.log")
    pending = [client.queue(commit_request({(TOPIC, 0): n}), 9) for n in range(3)]
    gone.queue(commit_request({(TOPIC, 0): 9}), 9)
    gone.connection.out.clear()  # as when its socket breaks
    broker.settle()
    for one in pending:
        (topic,) = one.of(OffsetCommitResponse).topics
        assert topic.partitions[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    broker.files.heal()
    broker.pass_ms(1100)
    assert commit(client, {(TOPIC, 0): 4}) == [0]


def test_a_failed_assignment_lets_nobody_believe_in_it(broker: Broker) -> None:
    leader, follower = Member(broker, "a").join(), Member(broker, "b").join()
    broker.pass_ms(2 * DELAY_MS)
    assert leader.leads
    follower.joined  # noqa: B018
    follower.sync()
    broker.files.fill("*.log")
    leader.sync({follower.member_id: b"x"})
    assert leader.synced.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert follower.synced.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    broker.files.heal()
    broker.pass_ms(1100)
    assert broker.group().state_name == "Empty"
    assert leader.sync({}).of(SyncGroupResponse).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_parked_joins_of_a_failed_shard_may_try_again(broker: Broker) -> None:
    parked = Member(broker, "a").join()
    broker.files.fill("*.log")
    commit(broker.connect(), {(TOPIC, 0): 1}, group_id="other")
    assert parked.joined.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    broker.files.heal()
    broker.pass_ms(1100)
    parked.member_id = ""
    stable_group(broker, parked)


def test_a_new_group_that_cannot_be_written_is_not_there(broker: Broker) -> None:
    broker.files.fill("*.log")
    refused = Member(broker).send_join().of(JoinGroupResponse)
    assert refused.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    broker.files.heal()
    broker.pass_ms(1100)
    assert GROUP not in broker.shard().groups


def test_timers_of_a_failed_shard_do_nothing_any_more(broker: Broker) -> None:
    member = Member(broker)
    stable_group(broker, member)
    broker.files.fill("*.log")
    commit(broker.connect(), {(TOPIC, 0): 1}, group_id="other")
    broker.files.heal()
    broker.pass_ms(1100)
    end = broker.log.log_end_offset
    assert member.heartbeat() == ErrorCode.NONE
    broker.pass_ms(9500)  # the old sessions would be over by now
    assert broker.log.log_end_offset == end
    assert member.heartbeat() == ErrorCode.NONE


def test_a_lost_directory_leaves_the_shard_unavailable() -> None:
    broker = Broker(log_dirs="/data,/a,/b")  # a broker ends with that of the metadata, the first
    client = broker.connect()
    commit(client, {(TOPIC, 0): 1})
    assert broker.log.directory.startswith("/b/")
    broker.files.fail("write", path="/b/*.log")
    assert commit(client, {(TOPIC, 0): 2}) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    broker.files.heal()
    broker.pass_ms(5000)
    # The partition has no leader any more, so nobody coordinates its groups.
    assert commit(client, {(TOPIC, 0): 3}) == [ErrorCode.NOT_COORDINATOR]


def test_another_leader_epoch_fences_the_shard(broker: Broker) -> None:
    client = broker.connect()
    commit(client, {(TOPIC, 0): 1})
    broker.node.groups.runtimes[0].partition.leader_epoch += 1
    assert commit(client, {(TOPIC, 0): 2}) == [ErrorCode.NOT_COORDINATOR]
    broker.pass_ms(1100)
    assert fetch(client) == {(TOPIC, 0): 1}
    assert commit(client, {(TOPIC, 0): 3}) == [0]


def test_groups_go_with_the_leadership_of_their_partition_and_come_back(broker: Broker) -> None:
    member, parked = Member(broker, "a"), Member(broker, "b")
    stable_group(broker, member)
    assert member.commit(5) == ErrorCode.NONE
    parked.join()
    elect(broker, broker.node.node_id + 1)
    assert parked.joined.error_code == ErrorCode.NOT_COORDINATOR
    assert member.heartbeat() == ErrorCode.NOT_COORDINATOR
    assert commit(broker.connect(), {(TOPIC, 0): 6}) == [ErrorCode.NOT_COORDINATOR]
    elect(broker, broker.node.node_id)
    broker.pass_ms(10)
    assert member.heartbeat() == ErrorCode.NONE
    assert fetch(broker.connect()) == {(TOPIC, 0): 5}


def elect(broker: Broker, leader: int) -> None:
    """Let another broker, or this one again, lead the partition of all groups."""
    topic_id = broker.node.image.topics[OFFSETS_TOPIC].topic_id
    change = PartitionChangeRecord(partition_id=0, topic_id=topic_id, leader=leader)
    broker.node.controller.write([change])
    broker.settle()


def test_a_deleted_offsets_topic_ends_all_groups(broker: Broker) -> None:
    parked = Member(broker).join()
    topic_id = broker.node.image.topics[OFFSETS_TOPIC].topic_id
    broker.node.controller.write([RemoveTopicRecord(topic_id=topic_id)])
    broker.settle()
    assert parked.joined.error_code == ErrorCode.NOT_COORDINATOR
    assert commit(broker.connect(), {(TOPIC, 0): 1}) == [ErrorCode.NOT_COORDINATOR]


# -- answers --------------------------------------------------------------------------------


def test_an_assignment_is_told_only_when_it_is_written(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader, follower = Member(broker, "a").join(), Member(broker, "b").join()
    broker.pass_ms(2 * DELAY_MS)
    assert leader.leads
    follower.joined  # noqa: B018
    monkeypatch.setattr(broker, "settle", lambda: None)
    leader.sync({follower.member_id: b"x"})
    follower.sync()  # stable by now, as far as the shard knows
    follower.client.receive()
    leader.client.receive()
    assert follower.syncing is not None
    assert follower.syncing.response is None
    assert leader.syncing is not None
    assert leader.syncing.response is None
    monkeypatch.undo()
    broker.settle()
    assert follower.synced.assignment == b"x"
    assert leader.synced.error_code == ErrorCode.NONE


def test_a_rebalance_right_after_the_assignment(broker: Broker) -> None:
    leader, follower, third = (Member(broker, name) for name in "abc")
    stable_group(broker, leader, follower)
    third.join()
    leader.join()
    follower.join()
    sync_all([leader, follower, third])
    assert broker.stored().generation == 2
    assert {m.assignment for m in broker.stored().members} == {b"a", b"b", b"c"}
