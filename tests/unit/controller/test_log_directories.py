"""Log directories of replicas: what is noted, what a lost one changes, who may lead."""

from __future__ import annotations

from ottla.config.broker import BrokerConfig
from ottla.controller.broker_changes import return_unclean
from ottla.controller.brokers import ELR_VERSION
from ottla.controller.log_directories import (
    DirectoryAssignment,
    assign_directories,
    lose_directories,
)
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import BrokerImage, MetadataImage, PartitionImage, TopicImage
from ottla.model.config_resources import ResourceType
from ottla.model.errors import ErrorCode
from ottla.model.ids import LOST_DIRECTORY
from ottla.model.steps import run_to_end

ID = b"t" * 16
A, B, C, D, GONE = (bytes([65 + number]) * 16 for number in range(5))
CONFIG = BrokerConfig()


def cluster(*partitions: PartitionImage, elr: int = 0) -> MetadataImage:
    """Return an image: broker 1 has the directories A and B, broker 2 has C and D."""
    brokers = {
        1: BrokerImage(1, 10, b"1" * 16, (), fenced=False, log_dirs=(A, B)),
        2: BrokerImage(2, 20, b"2" * 16, (), fenced=False, log_dirs=(C, D)),
    }
    topic = TopicImage("t", ID, partitions)
    return MetadataImage(
        topics={"t": topic},
        topics_by_id={ID: topic},
        brokers=brokers,
        features={ELR_VERSION: elr} if elr else {},
        configs={(ResourceType.TOPIC, "t"): {"min.insync.replicas": "2"}} if elr else {},
    )


def partition(
    index: int, leader: int, directories: tuple[bytes, ...], isr: tuple[int, ...] = (1, 2)
) -> PartitionImage:
    return PartitionImage(index, (1, 2), isr, leader, 3, 4, directories)


def after(image: MetadataImage, records: list[object]) -> list[PartitionImage]:
    delta = MetadataDelta(image)
    return list(delta.replay_all(records).apply().topics["t"].partitions)  # type: ignore[arg-type]


def assigned(
    image: MetadataImage, broker_id: int, directory: bytes, index: int = 0, topic: bytes = ID
) -> tuple[PartitionImage, ErrorCode | None]:
    decision = run_to_end(
        assign_directories(image, CONFIG, broker_id, [DirectoryAssignment(directory, topic, index)])
    )
    (result,) = decision.results
    code = None if result.error is None else result.error.code
    return after(image, list(decision.records))[0], code


def test_a_lost_directory_takes_only_its_own_replicas_out() -> None:
    image = cluster(partition(0, 1, (A, C)), partition(1, 1, (B, D)), partition(2, 2, (A, C)))
    records = run_to_end(lose_directories(image, CONFIG, 1, [A, GONE]))
    changed = after(image, list(records))
    assert [(each.leader, each.isr) for each in changed] == [(2, (2,)), (1, (1, 2)), (2, (2,))]
    delta = MetadataDelta(image).replay_all(records)
    assert delta.apply().brokers[1].log_dirs == (B,)
    assert run_to_end(lose_directories(image, CONFIG, 1, [GONE])) == []


def test_nobody_leads_if_the_only_replica_in_sync_is_lost() -> None:
    image = cluster(partition(0, 1, (A, C), isr=(1,)))
    (changed,) = after(image, list(run_to_end(lose_directories(image, CONFIG, 1, [A]))))
    assert (changed.leader, changed.isr) == (-1, (1,))


def test_an_assignment_changes_the_directory_only() -> None:
    image = cluster(partition(0, 1, (A, C)))
    changed, code = assigned(image, 1, B)
    assert code is None
    assert (changed.directories, changed.leader, changed.leader_epoch) == ((B, C), 1, 3)
    assert assigned(image, 1, A)[0] == image.topics["t"].partitions[0]


def test_an_assignment_to_a_lost_directory_moves_the_leader() -> None:
    image = cluster(partition(0, 1, (A, C)))
    for directory in (LOST_DIRECTORY, GONE):
        changed, _ = assigned(image, 1, directory)
        assert (changed.leader, changed.isr, changed.directories[0]) == (2, (2,), directory)


def test_nothing_is_assigned_to_a_broker_that_was_unregistered() -> None:
    image = cluster(partition(0, 1, (A, C)))._replace(brokers={})
    changed, code = assigned(image, 1, B)
    assert code == ErrorCode.STALE_BROKER_EPOCH
    assert changed.directories == (A, C)


def test_what_cannot_be_assigned() -> None:
    image = cluster(partition(0, 1, (A, C)))
    assert assigned(image, 1, B, topic=b"x" * 16)[1] == ErrorCode.UNKNOWN_TOPIC_ID
    assert assigned(image, 1, B, index=7)[1] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    alone = cluster(PartitionImage(0, (2,), (2,), 2, 3, 4, (C,)))
    assert assigned(alone, 1, B)[1] == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_new_disk_does_not_lead_what_it_does_not_have() -> None:
    lost_disk = cluster(partition(0, -1, (GONE, C), isr=(1,)))
    changed, _ = assigned(lost_disk, 1, A)
    assert (changed.leader, changed.directories) == (-1, (A, C))
    found_again = cluster(partition(0, -1, (LOST_DIRECTORY, C), isr=(1,)))
    changed, _ = assigned(found_again, 1, A)
    assert (changed.leader, changed.isr) == (1, (1,))


def test_a_broker_that_crashed_is_no_eligible_leader() -> None:
    eligible = partition(0, 2, (A, C), isr=(2,))._replace(eligible_leader_replicas=(1,))
    image = cluster(eligible, elr=1)
    (changed,) = after(image, list(run_to_end(return_unclean(image, CONFIG, 1))))
    assert (changed.isr, changed.eligible_leader_replicas) == ((2,), ())
    assert run_to_end(return_unclean(cluster(eligible), CONFIG, 1)) == []


def test_a_replica_of_a_lost_directory_is_no_eligible_leader() -> None:
    """The broker may begin it anew, empty, in another directory."""
    image = cluster(partition(0, 1, (A, C)), elr=1)
    (changed,) = after(image, list(run_to_end(lose_directories(image, CONFIG, 1, [A]))))
    assert (changed.leader, changed.isr, changed.eligible_leader_replicas) == (2, (2,), ())
    changed, _ = assigned(image, 1, GONE)
    assert (changed.leader, changed.isr, changed.eligible_leader_replicas) == (2, (2,), ())


def test_a_new_disk_is_neither_eligible_nor_the_last_leader() -> None:
    """It would lead without a single record as soon as anything else changes."""
    eligible = partition(0, -1, (GONE, C), isr=())._replace(eligible_leader_replicas=(1, 2))
    changed, _ = assigned(cluster(eligible, elr=1), 1, A)
    assert (changed.leader, changed.isr, changed.eligible_leader_replicas) == (2, (2,), ())
    last = partition(0, -1, (GONE, C), isr=())._replace(last_known_elr=(1,))
    changed, _ = assigned(cluster(last, elr=1), 1, A)
    assert (changed.leader, changed.last_known_elr) == (-1, ())


def test_the_last_replica_in_sync_may_lead_again_after_a_crash() -> None:
    """Its partition had no leader already when eligible leader replicas were switched on."""
    image = cluster(partition(0, -1, (A, C), isr=(1,)), elr=1)
    (changed,) = after(image, list(run_to_end(return_unclean(image, CONFIG, 1))))
    assert (changed.leader, changed.isr, changed.last_known_elr) == (-1, (), (1,))
