"""Elections, reassignments, features, and requests about the quorum and its voters."""

from __future__ import annotations

from collections.abc import Iterator

from compare.case import Case, case, in_versions
from ottla.model.ids import METADATA_TOPIC
from ottla.wire.messages import add_raft_voter as add
from ottla.wire.messages import alter_partition_reassignments as alter
from ottla.wire.messages import describe_quorum as quorum
from ottla.wire.messages import elect_leaders as elect
from ottla.wire.messages import list_partition_reassignments as listing
from ottla.wire.messages import update_features as features
from ottla.wire.messages.remove_raft_voter import RemoveRaftVoterRequest
from ottla.wire.messages.unregister_broker import UnregisterBrokerRequest

SOMEBODY = bytes(range(16))
ELR, MV = "eligible.leader.replicas.version", "metadata.version"


def election(*names: tuple[str, int], kind: int = 0) -> elect.ElectLeadersRequest:
    return elect.ElectLeadersRequest(
        election_type=kind,
        topic_partitions=[
            elect.TopicPartitions(topic=name, partitions=[index]) for name, index in names
        ],
    )


def reassignment(
    name: str, *replicas: list[int] | None, index: int = 0, change: bool = True
) -> alter.AlterPartitionReassignmentsRequest:
    return alter.AlterPartitionReassignmentsRequest(
        allow_replication_factor_change=change,
        topics=[
            alter.ReassignableTopic(
                name=name,
                partitions=[
                    alter.ReassignablePartition(partition_index=index, replicas=each)
                    for each in replicas
                ],
            )
        ],
    )


def reassignments_of(name: str, *indexes: int) -> listing.ListPartitionReassignmentsRequest:
    topic = listing.ListPartitionReassignmentsTopics(name=name, partition_indexes=list(indexes))
    return listing.ListPartitionReassignmentsRequest(topics=[topic])


def quorum_of(*names: tuple[str, int]) -> quorum.DescribeQuorumRequest:
    return quorum.DescribeQuorumRequest(
        topics=[
            quorum.RequestTopicData(
                topic_name=name, partitions=[quorum.RequestPartitionData(partition_index=index)]
            )
            for name, index in names
        ]
    )


def update(
    *levels: tuple[str, int, int], validate_only: bool = False
) -> features.UpdateFeaturesRequest:
    return features.UpdateFeaturesRequest(
        feature_updates=[
            features.FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind)
            for name, level, kind in levels
        ],
        validate_only=validate_only,
    )


def cases() -> Iterator[Case]:
    """Yield the cases."""
    yield from _elections()
    yield from _reassignments()
    yield from _quorum()
    yield from _features()
    yield from _brokers_and_voters()


def _elections() -> Iterator[Case]:
    yield from in_versions("preferred leader", (0, 1, 2), election(("full", 0)))
    yield from in_versions("unclean", (1, 2), election(("full", 0), kind=1))
    yield case("unknown topic", 2, election(("nobody", 0)))
    yield case("unknown partition", 2, election(("full", 99), ("full", -1)))
    yield case("unknown type", 2, election(("full", 0), kind=7))
    yield case("no partitions", 2, election())
    yield case("partition twice", 2, election(("full", 0), ("full", 0)))
    everything = elect.ElectLeadersRequest(topic_partitions=None)
    yield from in_versions("all", (0, 1, 2), everything)


def _reassignments() -> Iterator[Case]:
    yield from in_versions("to where it is", (0, 1), reassignment("empty", [1]))
    yield case("to an unknown broker", 1, reassignment("empty", [2]))
    yield case("to a negative broker", 1, reassignment("empty", [-1]))
    yield case("to nobody", 1, reassignment("empty", []))
    yield case("to one broker twice", 1, reassignment("empty", [1, 1]))
    yield case("more replicas", 1, reassignment("empty", [1, 2], change=False))
    yield case("cancel none", 1, reassignment("empty", None))
    yield case("unknown topic", 1, reassignment("nobody", [1]))
    yield case("unknown partition", 1, reassignment("empty", [1], index=99))
    yield case("partition twice", 1, reassignment("empty", [1], [1]))
    yield case("nothing", 1, alter.AlterPartitionReassignmentsRequest())
    yield case("all", 0, listing.ListPartitionReassignmentsRequest(topics=None))
    yield case("none", 0, listing.ListPartitionReassignmentsRequest())
    yield case("one partition", 0, reassignments_of("empty", 0))
    yield case("unknown topic", 0, reassignments_of("nobody", 0))
    yield case("unknown partition", 0, reassignments_of("empty", 99))


def _quorum() -> Iterator[Case]:
    yield from in_versions("metadata", (0, 1, 2), quorum_of((METADATA_TOPIC, 0)))
    yield case("another topic", 2, quorum_of(("full", 0)))
    yield case("another partition", 2, quorum_of((METADATA_TOPIC, 1)))
    yield case("two topics", 2, quorum_of((METADATA_TOPIC, 0), ("full", 0)))
    yield case("nothing", 2, quorum_of())


def _features() -> Iterator[Case]:
    yield from in_versions("unknown", (1, 2), update(("no.such.feature", 1, 1)))
    yield case("nothing", 2, update())
    yield case("group.version as it is", 2, update(("group.version", 1, 1)))
    yield case("group.version too high", 2, update(("group.version", 99, 1)))
    yield case("negative level", 2, update(("group.version", -1, 1)))
    yield case("unknown type of upgrade", 2, update(("group.version", 1, 9)))
    yield case("type of upgrade 0", 2, update(("group.version", 1, 0)))
    yield case("lower without saying so", 2, update(("group.version", 0, 1)))
    yield case("feature twice", 2, update(("group.version", 1, 1), ("group.version", 1, 1)))
    lower = update(("group.version", 0, 2), validate_only=True)
    yield case("lower, validate only", 2, lower)
    yield from _lower_and_raise("transaction.version", 1, 2)
    yield from _lower_and_raise(ELR, 0, 1)
    yield case("eligible leaders, too high", 2, update((ELR, 2, 1)))
    yield from _metadata_version()


def _lower_and_raise(name: str, low: int, high: int) -> Iterator[Case]:
    yield case(f"{name} lower and unsafe", 2, update((name, low, 3)), changes=True)
    yield case(f"{name} up, said to be down", 2, update((name, high, 2)))
    yield case(f"{name} up", 2, update((name, high, 1)), changes=True)
    yield case(f"{name} up again", 1, update((name, high, 1)), changes=True)
    yield case(f"{name} lower", 1, update((name, low, 2)), changes=True)
    yield case(f"{name} up in the end", 2, update((name, high, 1)), changes=True)


def _metadata_version() -> Iterator[Case]:
    yield case("the newest metadata.version", 2, update((MV, 30, 1)), changes=True)
    yield case("metadata.version as it is", 1, update((MV, 30, 1)), changes=True)
    yield case("metadata.version as it is, said to be down", 2, update((MV, 30, 2)))
    for level in (29, 25, 22, 7):
        yield case(f"metadata.version {level} safely", 2, update((MV, level, 2)))
        yield case(f"metadata.version {level} unsafely", 2, update((MV, level, 3)))
        yield case(f"metadata.version {level} without saying so", 2, update((MV, level, 1)))
    yield case("metadata.version lower, validate only", 2, update((MV, 29, 2), validate_only=True))
    for level in (0, 6, 99):
        yield case(f"metadata.version {level}", 2, update((MV, level, 2 if level < 9 else 1)))
    yield case("one good, one bad", 2, update(("group.version", 0, 2), (MV, 29, 2)))
    yield case("one good, one bad, the other way", 2, update((MV, 29, 2), ("group.version", 0, 2)))


def _brokers_and_voters() -> Iterator[Case]:
    yield case("unknown broker", 0, UnregisterBrokerRequest(broker_id=99))
    yield case("negative broker", 0, UnregisterBrokerRequest(broker_id=-1))
    listener = add.Listener(name="CONTROLLER", host="localhost", port=9999)
    voter = add.AddRaftVoterRequest(
        cluster_id=None, voter_id=2, voter_directory_id=SOMEBODY, listeners=[listener]
    )
    yield from in_versions("a voter", (0, 1), voter)
    foreign = add.AddRaftVoterRequest(
        cluster_id="another", voter_id=2, voter_directory_id=SOMEBODY, listeners=[listener]
    )
    yield case("voter of another cluster", 1, foreign)
    without = add.AddRaftVoterRequest(cluster_id=None, voter_id=2, voter_directory_id=SOMEBODY)
    yield case("voter without listeners", 1, without)
    nobody = RemoveRaftVoterRequest(cluster_id=None, voter_id=7, voter_directory_id=SOMEBODY)
    yield case("an unknown voter", 0, nobody)
    elsewhere = RemoveRaftVoterRequest(
        cluster_id="another", voter_id=7, voter_directory_id=SOMEBODY
    )
    yield case("a voter of another cluster", 0, elsewhere)
