"""The topics that match the regular expressions of subscriptions, kept up to date.

An expression is matched with all topics when it is first used, and later only with topics that
are created, however many groups use it. So it meets each name once. Internal topics match like
all others, as in Kafka.

A wake-up spends a limited amount of work on this. What is left is done in slices between
wake-ups, in turns for all expressions that have names to look at. Until then groups keep the
topics that they know.

`version` goes up with every change that subscriptions must look at: topics that are created or
deleted, partitions that are added, and an expression whose topics are found late.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from typing import Final, Protocol

from ottla.coordinator.groups.consumer.pattern import Pattern
from ottla.metadata.image import MetadataImage
from ottla.replication.timers import Timers

MAX_UNUSED: Final = 100
"""How many expressions are remembered that no group uses."""

BUDGET: Final = 1_000_000
"""The most that matching may cost in one wake-up, in units of about 2 ns."""

_TURN: Final = BUDGET // 8
_PAUSE_MS: Final = 2


class Broker(Protocol):
    """What is needed of the broker."""

    image: MetadataImage
    monotonic_ms: float
    timers: Timers


class TopicPatterns:
    """Expressions, each with its topics. Those that no group uses are forgotten."""

    def __init__(self, broker: Broker) -> None:
        self.version = 0
        self._broker = broker
        self._matches: dict[str, _Matches] = {}
        self._users: Counter[str] = Counter()
        """How many groups use an expression."""
        self._unused: dict[str, None] = {}
        """Expressions that no group uses. The one that was asked for last is the last."""
        self._queue: deque[_Matches] = deque()
        """Those with names to look at."""
        self._is_scheduled = False
        self._spent = 0
        self._spent_at_ms = float("-inf")

    # -- groups --------------------------------------------------------------------------

    def matching(self, regex: str) -> frozenset[str] | None:
        """Return the topics that match, or None if that is not known yet.

        Raise PatternError if the expression is not valid.
        """
        matches = self._matches.get(regex)
        if matches is None:
            matches = self._matches[regex] = _Matches(Pattern(regex))
            matches.add(tuple(self._broker.image.topics))
            if not (self._has_budget() and self._look(matches, BUDGET)):
                self._queue.append(matches)
                self._schedule()
        if regex not in self._users:
            self._keep_unused(regex)
        return matches.topics

    def use(self, regex: str) -> None:
        """Note that a group uses an expression."""
        self._users[regex] += 1
        self._unused.pop(regex, None)

    def release(self, regex: str) -> None:
        """Note that a group no longer uses an expression."""
        self._users[regex] -= 1
        if not self._users[regex]:
            del self._users[regex]
            if regex in self._matches:
                self._keep_unused(regex)

    def _keep_unused(self, regex: str) -> None:
        """Remember an expression for a while, and forget the one nobody asked for longest."""
        self._unused.pop(regex, None)
        self._unused[regex] = None
        if len(self._unused) > MAX_UNUSED:
            oldest = next(iter(self._unused))
            del self._unused[oldest]
            self._matches.pop(oldest).forget()

    # -- topics --------------------------------------------------------------------------

    def topics_changed(self, names: Sequence[str] = ()) -> None:
        """Follow a change of the image: these topics are created or deleted, or others changed."""
        if names:
            changed = tuple(names)
            for matches in self._matches.values():
                if matches.is_idle:
                    self._queue.append(matches)
                matches.add(changed)
            self._work()
        self.version += 1

    # -- slices --------------------------------------------------------------------------

    def _continue(self) -> None:
        self._is_scheduled = False
        if self._work():
            self.version += 1

    def _work(self) -> bool:
        """Spend what is left for this wake-up. Return True if the topics of some changed."""
        changed = False
        queue = self._queue
        while queue and self._has_budget():
            matches = queue.popleft()
            before = matches.topics
            if self._look(matches, _TURN):
                changed |= matches.topics is not before
            else:
                queue.append(matches)
        if queue:
            self._schedule()
        return changed

    def _look(self, matches: _Matches, budget: int) -> bool:
        spent, is_done = matches.look(self._broker.image, budget)
        self._spent += spent
        return is_done

    def _has_budget(self) -> bool:
        now_ms = self._broker.monotonic_ms
        if now_ms != self._spent_at_ms:
            self._spent, self._spent_at_ms = 0, now_ms
        return self._spent < BUDGET

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            broker = self._broker
            broker.timers.at(broker.monotonic_ms + _PAUSE_MS, self._continue)


class _Matches:
    """The topics of one expression, and the names that it has not been matched with."""

    __slots__ = ("_added", "_names", "_pattern", "_position", "_removed", "topics")

    def __init__(self, pattern: Pattern) -> None:
        self.topics: frozenset[str] | None = None
        """The topics that match. None until all topics were looked at once."""
        self._pattern = pattern
        self._names: deque[tuple[str, ...]] = deque()
        self._position = 0
        """How far the first of the names are looked at."""
        self._added: set[str] = set()
        self._removed: set[str] = set()

    @property
    def is_idle(self) -> bool:
        """True if there are no names to look at."""
        return not self._names

    def add(self, names: tuple[str, ...]) -> None:
        """Look at these names too: they are created or deleted."""
        self._names.append(names)

    def forget(self) -> None:
        """Drop all names. Nobody wants to know any more."""
        self._names.clear()

    def look(self, image: MetadataImage, budget: int) -> tuple[int, bool]:
        """Look at names for at most a budget, or at one. Return the cost, and if all is done.

        The cost includes that of compiling the expression, which is not taken from the budget:
        otherwise a large expression would be compiled again for every name.
        """
        spent = 0
        compiled = self._pattern.compile_cost
        matches = self._pattern.matcher()
        while self._names:
            names = self._names[0]
            while self._position < len(names):
                if spent > budget:
                    return spent + compiled, False
                name = names[self._position]
                self._position += 1
                if name not in image.topics:
                    self._removed.add(name)
                    self._added.discard(name)
                    spent += 1
                    continue
                spent += self._pattern.cost(name)
                if matches(name):
                    self._added.add(name)
                    self._removed.discard(name)
            self._names.popleft()
            self._position = 0
        self._finish()
        return spent + compiled, True

    def _finish(self) -> None:
        known = frozenset() if self.topics is None else self.topics
        removed = self._removed & known
        added = self._added - known
        if removed or added or self.topics is None:
            self.topics = known.difference(removed).union(added)
        self._added, self._removed = set(), set()
