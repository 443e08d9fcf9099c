"""The quorum of one on disk: quorum-state, epochs, and directories that others wrote."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from ottla.log.damage import DamagedLog
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
    """Return a metadata log without a quorum-state, as versions before wrote it."""
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


TOPICS = ["topic-1", "topic-2", "topic-3"]


def replace_files(world: World, contents: dict[str, bytes]) -> None:
    """Give the directory exactly these files."""
    for name in world.names(""):
        world.files.unlink(world.path(name))
    for name, content in contents.items():
        world.files.open(world.path(name), create=True, writable=True).pwritev([content], 0)


@pytest.mark.parametrize("is_clean", [True, False])
def test_no_flipped_bit_changes_the_metadata(is_clean: bool) -> None:
    world = World()
    world.create(1, 2, 3)
    world.controller.log.close()
    content = read_file(world.files, world.path(FIRST_SEGMENT))
    last = list(scan(content, 0, len(content)))[-1].position
    at_rest = {name: read_file(world.files, world.path(name)) for name in world.names("")}
    refusals: list[str] = []
    for position in range(len(content)):
        damaged = bytearray(content)
        damaged[position] ^= 1 << position % 8
        replace_files(world, {**at_rest, FIRST_SEGMENT: bytes(damaged)})
        try:
            world.start(is_clean=is_clean)
        except (MetadataError, DamagedLog) as error:
            refusals.append(str(error))
            continue
        if not is_clean and position >= last:  # looks like an interrupted write
            assert world.topics() in (TOPICS, TOPICS[:-1])
        else:
            assert world.topics() == TOPICS
    assert len(refusals) > 0.7 * last
    assert all(FIRST_SEGMENT in text or "are missing" in text for text in refusals)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_an_interrupted_write_at_the_end_is_cut_off(share: float) -> None:
    world = World()
    world.create(1, 2, 3)
    content = read_file(world.files, world.path(FIRST_SEGMENT))
    last = list(scan(content, 0, len(content)))[-1]
    file = world.files.open(world.path(FIRST_SEGMENT), writable=True)
    file.truncate(last.position + int(last.size * share))
    world.start()
    assert world.topics() == TOPICS[:-1]


def test_a_lost_sector_of_the_last_write_is_no_damage() -> None:
    world = World()
    world.create(1)
    outcomes = [world.submit(*(topic(n) for n in range(2, 60))), world.submit(topic(60))]
    world.finish()
    assert outcomes == [[None], [None]]
    content = read_file(world.files, world.path(FIRST_SEGMENT))
    *_, large, _ = scan(content, 0, len(content))
    start = large.position + 512 - large.position % 512
    assert start + 512 < large.end
    world.files.open(world.path(FIRST_SEGMENT), writable=True).pwritev([bytes(512)], start)
    world.start()
    assert world.topics() == ["topic-1"]


def test_damage_before_the_end_is_not_cut_off_after_a_crash() -> None:
    world = World()
    world.create(1, 2, 3)
    content = read_file(world.files, world.path(FIRST_SEGMENT))
    at = content.index(b"topic-2")
    world.files.open(world.path(FIRST_SEGMENT), writable=True).pwritev([b"T"], at)
    with pytest.raises(DamagedLog) as failed:
        world.start()
    assert str(failed.value).startswith(f"{world.path(FIRST_SEGMENT)} is damaged at offset 2: ")
    assert "CRC" in str(failed.value)
    assert str(failed.value).endswith(f"Restore {world.directory} from a copy")
    assert read_file(world.files, world.path(FIRST_SEGMENT))[at : at + 7] == b"Topic-2"
