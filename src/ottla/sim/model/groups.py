"""What members of groups were told: generations, assignments, committed offsets.

Invariants, checked with everything that is learned:
    the generation of a classic group never goes back while the broker runs
    one generation has one leader, and a partition at most one owner in it
    a partition of a KIP-848 group is given to nobody while another member may hold it
    a fetched offset is the one that was committed last
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ottla.model.ids import NO_OFFSET
from ottla.sim.network.exchange import Violation

_NEVER: Final = 1 << 62


class OffsetKey(NamedTuple):
    """A group's place in a partition."""

    group_id: str
    topic: str
    partition_index: int


class Commit(NamedTuple):
    """An offset that was committed, or may have been.

    `log_end` is where the log of __consumer_offsets ended when it was acknowledged: once so much
    is on disk, no power failure takes it. `refused` ones are not there, but a power failure may
    bring them back, as anything that was cut off a log.
    """

    offset: int
    log_end: int
    acked: bool
    refused: bool = False


class OffsetModel:
    """The commits of one key, in the order the broker decided them."""

    __slots__ = ("_commits", "_may_be_older")

    def __init__(self) -> None:
        self._commits = [Commit(NO_OFFSET, 0, acked=True)]
        self._may_be_older = -1
        """The oldest commit that a power failure may have left as the last; -1 without one."""

    def commit(self, commit: Commit) -> None:
        """Take a commit that was acknowledged, refused, or not answered."""
        if commit.acked:
            self._may_be_older = -1
        self._commits.append(commit)

    def possible(self) -> set[int]:
        """Return the offsets that a fetch may find."""
        first = self._may_be_older
        if first < 0:
            first = max(n for n, each in enumerate(self._commits) if each.acked)
            return {each.offset for each in self._commits[first:] if not each.refused}
        return {each.offset for each in self._commits[first:]}

    def see(self, offset: int) -> None:
        """Take what a fetch found: from now on it is this one."""
        last = max(n for n, each in enumerate(self._commits) if each.offset == offset)
        found = self._commits[last]
        self._may_be_older = -1
        self.commit(Commit(offset, found.log_end if found.acked else _NEVER, acked=True))

    def lose_power(self, durable_end: int) -> None:
        """Go back to what was on disk, or to anything after it.

        What may be lost is not known to be on disk later, wherever the log ends then.
        """
        durable = [
            n for n, each in enumerate(self._commits) if each.acked and each.log_end <= durable_end
        ]
        first = self._may_be_older = max(durable, default=0)
        self._commits[first + 1 :] = [
            each._replace(log_end=_NEVER) for each in self._commits[first + 1 :]
        ]


class HeldPartitions:
    """What a member of a KIP-848 group may have, as far as the broker can know."""

    __slots__ = ("epoch", "heard_ms", "revoking", "told")

    def __init__(self) -> None:
        self.told: set[tuple[bytes, int]] = set()
        self.revoking: set[tuple[bytes, int]] = set()
        """Partitions it was told to give up, and has not said it did."""
        self.epoch = 0
        self.heard_ms = 0.0

    def assign(self, partitions: set[tuple[bytes, int]]) -> None:
        """Take a new assignment; what is not in it any more must be given up."""
        self.revoking |= self.told - partitions
        self.revoking -= partitions
        self.told = partitions

    def report(self, owned: set[tuple[bytes, int]]) -> None:
        """Take what the member says it has."""
        self.revoking &= owned

    def holds(self, partition: tuple[bytes, int]) -> bool:
        return partition in self.told or partition in self.revoking


class GroupsModel:
    """All groups."""

    def __init__(self) -> None:
        self.offsets: dict[OffsetKey, OffsetModel] = {}
        self.planned: dict[tuple[str, int, str], list[bytes]] = {}
        """Assignments that leaders sent: by group, generation and member."""
        self.members: dict[str, dict[str, HeldPartitions]] = {}
        self._generations: dict[str, int] = {}
        self._next_generations: dict[str, int] = {}
        self._leaders: dict[tuple[str, int], str] = {}
        self._owners: dict[tuple[str, int], dict[str, str]] = {}

    # -- classic groups ------------------------------------------------------------------

    def generation(self, group_id: str) -> int:
        """Return the generation that was told before the node settled last."""
        return self._generations.get(group_id, -1)

    def join(self, group_id: str, generation_id: int, leader: str) -> None:
        """Learn that a member was told its generation and who leads it."""
        newest = self._next_generations.get(group_id, -1)
        if generation_id < self.generation(group_id):
            raise Violation(f"{group_id}: generation {generation_id} after {newest}")
        self._next_generations[group_id] = max(newest, generation_id)
        known = self._leaders.setdefault((group_id, generation_id), leader)
        if known != leader:
            raise Violation(f"{group_id}: {known} and {leader} lead generation {generation_id}")

    def own(self, group_id: str, generation_id: int, member_id: str, partitions: list[str]) -> None:
        """Learn that a member was told its partitions in a generation."""
        owners = self._owners.setdefault((group_id, generation_id), {})
        for partition in partitions:
            owner = owners.setdefault(partition, member_id)
            if owner != member_id:
                raise Violation(
                    f"{group_id}: {partition} belongs to {owner} and to {member_id}"
                    f" in generation {generation_id}"
                )

    def settled(self) -> None:
        """Make what was told with the last settling valid for everything after it."""
        self._generations.update(self._next_generations)

    # -- ends of the broker, and of topics -----------------------------------------------

    def restarted(self) -> None:
        """Forget generations: one that no record was written for may come again."""
        self._generations.clear()
        self._next_generations.clear()
        self._leaders.clear()
        self._owners.clear()

    def lose_power(self, durable_ends: dict[str, int]) -> None:
        """Lose what was not on disk; `durable_ends` says by group up to where it was."""
        self.members.clear()
        for key, offsets in self.offsets.items():
            offsets.lose_power(durable_ends.get(key.group_id, 0))

    def topic_removed(self, name: str) -> None:
        """Expect the offsets of a deleted topic to go as well, sooner or later."""
        for key, offsets in self.offsets.items():
            if key.topic == name:
                offsets.commit(Commit(NO_OFFSET, _NEVER, acked=False))
