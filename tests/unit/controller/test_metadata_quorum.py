"""The quorum of one on disk: quorum-state, epochs, and directories that others wrote."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from ottla.memory_files import MemoryFiles
from ottla.metadata.control_records import control_batch, decode_control
from ottla.metadata.serde import MetadataError, encode_record
from ottla.ports import Files, read_file
from ottla.records.batch import scan
from ottla.records.record import build_batch, records_of
from ottla.server.os_files import OsFiles
from ottla.wire.messages.k_raft_version_record import KRaftVersionRecord
from ottla.wire.messages.leader_change_message import LeaderChangeMessage
from ottla.wire.messages.leader_change_message import Voter as LeaderChangeVoter
from ottla.wire.messages.voters_record import Endpoint as VoterEndpoint
from ottla.wire.messages.voters_record import KRaftVersionFeature, VotersRecord
from ottla.wire.messages.voters_record import Voter as VotersRecordVoter
from tests.support.controller import DIRECTORY, World, topic

KAFKA_LOG = Path(__file__).parents[1] / "records/kafka-4.3/__cluster_metadata-0"
FIRST_SEGMENT = "00000000000000000000.log"


def quorum_state(world: World) -> dict[str, object]:
    state: dict[str, object] = json.loads(read_file(world.files, world.path("quorum-state")))
    return state


def test_every_start_leads_a_new_epoch() -> None:
    world = World()
    for epoch in (1, 2, 3):
        assert world.controller.leader_epoch == epoch
        world.create(epoch)
        state = quorum_state(world)
        assert (state["leaderId"], state["leaderEpoch"]) == (1, epoch)
        assert (state["currentVoters"], state["data_version"]) == ([{"voterId": 1}], 0)
        world.start()
    content = read_file(world.files, world.path(FIRST_SEGMENT))
    controls = [batch for batch in scan(content, 0, len(content)) if batch.is_control]
    assert [batch.partition_leader_epoch for batch in controls] == [1, 2, 3]
    assert [batch.base_offset for batch in controls] == [0, 2, 4]
    (record,) = records_of(content[controls[1].position : controls[1].end])
    voter = LeaderChangeVoter(voter_id=1)
    assert decode_control(record) == LeaderChangeMessage(
        leader_id=1, voters=[voter], granting_voters=[voter]
    )


def test_the_vote_is_on_disk_before_the_log() -> None:
    world = World()
    world.create(1)
    written = [path for path, _ in world.files.writes]
    assert written.index(world.path("quorum-state.tmp")) < written.index(world.path(FIRST_SEGMENT))
    synced = world.files.synced
    assert synced.index(world.path("quorum-state.tmp")) < synced.index(world.path(FIRST_SEGMENT))


def files_with(*batches: bytearray) -> Files:
    """A metadata log without a quorum-state, as versions before wrote it."""
    files = MemoryFiles()
    files.make_dirs(DIRECTORY)
    file = files.open(f"{DIRECTORY}/{FIRST_SEGMENT}", create=True)
    file.pwritev(list(batches), 0)
    return files


def plain_batch(offset: int, epoch: int, *numbers: int) -> bytearray:
    records = [(None, encode_record(topic(number)), 5, ()) for number in numbers]
    return build_batch(records, base_offset=offset, leader_epoch=epoch)


def test_a_log_of_the_version_before_is_read() -> None:
    world = World(files_with(plain_batch(0, 1, 1, 2), plain_batch(2, 4, 3)))
    assert world.topics() == ["topic-1", "topic-2", "topic-3"]
    assert world.controller.leader_epoch == 5
    assert (world.controller.image.end_offset, world.controller.image.epoch) == (3, 4)
    world.create(4)
    assert (world.controller.image.end_offset, world.controller.image.epoch) == (5, 5)


def test_kafkas_own_directory_is_read(tmp_path: Path) -> None:
    directory = tmp_path / "__cluster_metadata-0"
    shutil.copytree(KAFKA_LOG, directory)
    world = World(OsFiles(), directory=str(directory))
    image = world.controller.image
    assert len(image.topics) == 7
    assert image.controllers[1].endpoints[0].listener_name == "CONTROLLER"
    assert image.brokers[1].features
    assert world.controller.leader_epoch == 2
    assert image.end_offset == 67
    world.create(1)
    again = World(OsFiles(), directory=str(directory))
    assert again.controller.image.topics.keys() == {*image.topics, "topic-1"}


def voters(*keys: tuple[int, bytes]) -> bytearray:
    record = VotersRecord(
        voters=[
            VotersRecordVoter(
                voter_id=voter_id,
                voter_directory_id=directory_id,
                endpoints=[VoterEndpoint(name="CONTROLLER", host="h", port=9093)],
                k_raft_version_feature=KRaftVersionFeature(max_supported_version=1),
            )
            for voter_id, directory_id in keys
        ]
    )
    return control_batch([KRaftVersionRecord(k_raft_version=1), record], 5, leader_epoch=1)


def test_voters_in_the_log_are_kept() -> None:
    world = World(files_with(voters((1, b"d" * 16)), plain_batch(2, 1, 1)))
    assert world.topics() == ["topic-1"]
    world.create(2)
    state = quorum_state(world)
    assert (state["data_version"], state["leaderEpoch"]) == (1, 2)


@pytest.mark.parametrize("keys", [[(2, b"d" * 16)], [(1, b"e" * 16)], [(1, b"d" * 16), (2, b"e")]])
def test_a_log_of_other_voters_is_refused(keys: list[tuple[int, bytes]]) -> None:
    keys = [(voter_id, directory_id.ljust(16)) for voter_id, directory_id in keys]
    with pytest.raises(MetadataError, match="runs as a quorum of one"):
        World(files_with(voters(*keys)))


def test_a_damaged_quorum_state_ends_the_start() -> None:
    world = World().register()
    file = world.files.open(world.path("quorum-state"), writable=True)
    file.truncate(10)
    with pytest.raises(MetadataError, match="quorum-state is damaged"):
        world.start()


def test_damage_inside_the_log_ends_the_start() -> None:
    world = World()
    world.create(1, 2, 3)
    log = world.controller.log
    content = read_file(world.files, world.path(FIRST_SEGMENT))
    third = list(scan(content, 0, len(content)))[2]
    world.files.open(world.path(FIRST_SEGMENT), writable=True).pwritev([b"x"], third.end - 3)
    log.close()
    # The recovery point says that all of it is on disk, so recovery does not look at it.
    with pytest.raises(MetadataError, match=r"the metadata log is damaged at offset 2.*CRC"):
        list(world.controller._metadata_log.batches(0))
