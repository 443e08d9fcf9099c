"""Regular expressions matched against topic names in linear time.

Clients choose the expressions, and the broker has one thread: a backtracking matcher would let
one subscription stop it. So a pattern becomes a nondeterministic automaton, and the names that
are matched turn parts of it into a deterministic one. Each step costs at most the size of the
automaton, and the cost of a match is limited.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

from ottla.coordinator.groups.consumer.pattern_syntax import (
    BIT,
    WORD,
    Boundary,
    Chars,
    Choice,
    Node,
    PatternError,
    Repeat,
    Series,
    parse,
)

MAX_STATES: Final = 10_000
MAX_REMEMBERED: Final = 50_000
"""How many states of the first automaton all cached states of the second may hold."""


class _Place(Enum):
    """What is next to a position in a name."""

    EDGE = 0
    WORD = 1
    OTHER = 2


class _Step(NamedTuple):
    """A state: continue with a character, or without one, perhaps only at a boundary."""

    mask: int
    boundary: str
    following: tuple[int, ...]


_PLACE_OF: Final = {char: _Place.WORD if bit & WORD else _Place.OTHER for char, bit in BIT.items()}
_END: Final = 0
_Moves = dict[str, int]
_TOO_LARGE: Final = "it is too large once its repetitions are written out"


class Pattern:
    """A compiled regular expression.

    `cost` counts the work done, without steps that are cached. Its user may reset it and
    compare it with a limit.
    """

    def __init__(self, pattern: str) -> None:
        """Raise PatternError if it is not a regular expression, or too large."""
        self.cost = 0
        self._written_out = 0
        self._steps: list[_Step] = [_Step(0, "", ())]
        self._start = self._compile(parse(pattern), _END)
        self._forget()

    def matches(self, name: str) -> bool:
        """Return True if the expression matches a whole topic name."""
        state = 0
        for char in name:
            following = self._moves[state].get(char)
            if following is None:
                following = self._move(state, char)
            if following < 0:
                return False
            state = following
        return self._accepts(state)

    # -- from the tree to the automaton --------------------------------------------------

    def _add(self, mask: int, boundary: str, *following: int) -> int:
        if len(self._steps) >= MAX_STATES:
            raise PatternError(_TOO_LARGE)
        self._steps.append(_Step(mask, boundary, following))
        return len(self._steps) - 1

    def _compile(self, node: Node, following: int) -> int:
        """Return the state that matches the node and then continues at `following`."""
        self._written_out += 1
        if self._written_out > MAX_STATES:  # a repetition of nothing makes no states
            raise PatternError(_TOO_LARGE)
        if isinstance(node, Chars):
            return self._add(node.mask, "", following) if node.mask else self._add(0, "")
        if isinstance(node, Boundary):
            return self._add(0, node.kind, following)
        if isinstance(node, Series):
            for part in reversed(node.parts):
                following = self._compile(part, following)
            return following
        if isinstance(node, Choice):
            return self._add(0, "", *[self._compile(way, following) for way in node.ways])
        return self._compile_repeat(node, following)

    def _compile_repeat(self, repeat: Repeat, following: int) -> int:
        if repeat.high is None:
            loop = self._add(0, "")
            again = self._compile(repeat.node, loop)
            self._steps[loop] = _Step(0, "", (again, following))
            following = loop
        else:
            end = following
            for _ in range(repeat.high - repeat.low):
                following = self._add(0, "", self._compile(repeat.node, following), end)
        for _ in range(repeat.low):
            following = self._compile(repeat.node, following)
        return following

    # -- from the automaton to a deterministic one ------------------------------------------

    def _forget(self) -> None:
        """Drop the deterministic automaton and start a new one."""
        self._numbers: dict[tuple[frozenset[int], _Place], int] = {}
        self._states: list[tuple[frozenset[int], _Place]] = []
        self._moves: list[_Moves] = []
        self._accepting: dict[int, bool] = {}
        self._remembered = 0
        self._number(frozenset((self._start,)), _Place.EDGE)

    def _number(self, states: frozenset[int], place: _Place) -> int:
        number = self._numbers.get((states, place))
        if number is None:
            number = len(self._states)
            self._numbers[states, place] = number
            self._states.append((states, place))
            self._moves.append({})
            self._remembered += len(states)
        return number

    def _move(self, state: int, char: str) -> int:
        """Return the state that a character leads to, -1 if none. The result is cached."""
        bit = BIT.get(char, 0)
        place = _PLACE_OF.get(char, _Place.OTHER)
        reached = self._reachable(state, place)
        states = frozenset(
            step.following[0] for step in map(self._steps.__getitem__, reached) if step.mask & bit
        )
        if not states:
            self._moves[state][char] = -1
            return -1
        if self._remembered > MAX_REMEMBERED:
            self._forget()
            return self._number(states, place)
        following = self._number(states, place)
        self._moves[state][char] = following
        return following

    def _accepts(self, state: int) -> bool:
        known = self._accepting.get(state)
        if known is None:
            known = _END in self._reachable(state, _Place.EDGE)
            self._accepting[state] = known
        return known

    def _reachable(self, state: int, after: _Place) -> set[int]:
        """Return all states that can be reached without a character if `after` comes next."""
        states, before = self._states[state]
        reached = set(states)
        stack = list(states)
        while stack:
            mask, boundary, following = self._steps[stack.pop()]
            if mask or (boundary and not _holds(boundary, before, after)):
                continue
            for other in following:
                if other not in reached:
                    reached.add(other)
                    stack.append(other)
        self.cost += len(reached)
        return reached


def _holds(boundary: str, before: _Place, after: _Place) -> bool:
    """Return True if there is a boundary between `before` and `after`."""
    if boundary == "start":
        return before is _Place.EDGE
    if boundary == "end":
        return after is _Place.EDGE
    is_word_boundary = (before is _Place.WORD) != (after is _Place.WORD)
    return is_word_boundary == (boundary == "word")
