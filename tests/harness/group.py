"""A group of members in processes of their own, on one topic."""

from __future__ import annotations

from contextlib import ExitStack
from types import TracebackType
from typing import Self

from tests.harness.deadline import eventually
from tests.harness.member.handle import Member
from tests.harness.member.report import Key
from tests.harness.member.spec import Spec
from tests.harness.ownership import (
    check_monotonic_commits,
    check_single_owners,
    missing,
    repeated,
)
from tests.harness.raw import ConnectionClosed, RawConnection

PATIENCE_S = 3 * Spec.max_poll_interval_ms / 1000
"""How long members may take: only a failure waits for it, and they may have to share a core.

A rebalance waits max.poll.interval.ms for a member that does not hear of it, and there may be
another one behind it.
"""


class Group:
    """Starts members that share a `Spec`, waits for them, and checks what must hold."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.members: list[Member] = []
        self._stack = ExitStack()

    def start(self, **changes: object) -> Member:
        """Start one more member, as the others but for these changes."""
        name = f"m{len(self.members)}"
        fields = {**self.spec.__dict__, "client_id": name, **changes}
        member = self._stack.enter_context(Member(name, Spec(**fields)))
        self.members.append(member)
        return member

    def gather(self, keys: set[Key], count: int, **changes: object) -> list[Member]:
        """Start more members like the others, with these changes; wait for all."""
        new = [self.start(**changes) for _ in range(count)]
        self.settle(keys, *(member for member in self.members if member.alive))
        return new

    def settle(self, keys: set[Key], *members: Member, timeout_s: float = PATIENCE_S) -> None:
        """Wait until these members share the partitions, each having some, nobody else any."""

        def settled() -> bool:
            dead = [member.name for member in members if not member.alive]
            assert not dead, f"{dead} ended by themselves"
            shares = [member.owned for member in members]
            every = [key for share in shares for key in share]
            others = [m for m in self.members if m not in members and m.owned]
            return all(shares) and sorted(every) == sorted(keys) and not others

        try:
            eventually(settled, f"{[m.name for m in members]} share {len(keys)}", timeout_s)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.tails()}") from None

    def finish(self, ends: dict[Key, int], *, once: bool, timeout_s: float = PATIENCE_S) -> None:
        """Wait until every record is processed, then check what must hold of the group."""
        try:
            eventually(lambda: not missing(self.members, ends), "all is processed", timeout_s)
        except AssertionError as error:
            left = missing(self.members, ends)
            raise AssertionError(f"{error}: missing {left}\n{self.tails()}") from None
        check_single_owners(self.members)
        check_monotonic_commits(self.members)
        if once:
            again = repeated(self.members)
            assert not again, f"processed twice: {again}\n{self.tails()}"

    def tails(self) -> str:
        """Return the output of all members, and what the coordinator knows, for a report."""
        return "\n".join([*(member.tail() for member in self.members), self._described()])

    def _described(self) -> str:
        api, key = ("describe_groups", "groups")
        if self.spec.protocol == "consumer":
            api, key = ("consumer_group_describe", "group_ids")
        try:
            with RawConnection(self.spec.bootstrap_servers) as raw:
                return f"coordinator: {raw.request(api, 0, **{key: [self.spec.group]})}"
        except (OSError, ConnectionClosed) as error:
            return f"coordinator: {error}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()


def partitions_of(topic: str, count: int) -> set[Key]:
    """Return all partitions of a topic."""
    return {(topic, number) for number in range(count)}
