"""Regular expressions of subscriptions, matched by RE2.

Clients choose the expressions, and the broker has one thread: a matcher that backtracks would
let one subscription stop it. RE2 takes time in proportion to the expression and the name, and
Kafka uses its Java version. RE2 is imported with the first expression.

`MAX_MEM_BYTES` limits what one expression may take. It also limits the size of its program to
about 4,000 instructions, so that a name takes two milliseconds at worst. The module `re2` keeps
up to 128 compiled expressions, so all of them together take at most 16 MiB.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Final

MAX_LENGTH: Final = 4096
"""The longest expression in characters."""

MAX_MEM_BYTES: Final = 128 * 1024
"""The most memory of one compiled expression, with what it caches while it matches."""

_CALL_COST: Final = 1000
_COMPILE_COST: Final = 10_000
_COMPILE_COST_OF_INSTRUCTION: Final = 350


class PatternError(ValueError):
    """An expression is not valid, or too large. The message says why."""


class Pattern:
    """A regular expression that is valid.

    `size` is that of its program: a match costs at most the size times the length of the name.
    """

    __slots__ = ("_regex", "size")

    def __init__(self, regex: str) -> None:
        """Raise PatternError if it is not a regular expression, or too large."""
        if len(regex) > MAX_LENGTH:
            raise PatternError(f"it has {len(regex)} characters, and {MAX_LENGTH} are the most")
        self._regex = regex
        self.size: int = self._compiled().programsize

    def matches(self, name: str) -> bool:
        """Return True if the expression matches a whole topic name."""
        return self.matcher()(name)

    def matcher(self) -> Callable[[str], bool]:
        """Return a function that does what `matches` does, for many names."""
        fullmatch = self._compiled().fullmatch
        return lambda name: fullmatch(name.encode()) is not None

    @property
    def compile_cost(self) -> int:
        """The most that `matcher` costs in units of about 2 ns, if RE2 has to compile again."""
        return _COMPILE_COST + _COMPILE_COST_OF_INSTRUCTION * self.size

    def cost(self, name: str) -> int:
        """Return the most that a match with this name can cost, in units of about 2 ns."""
        return _CALL_COST + self.size * len(name)

    def _compiled(self) -> Any:
        re2, options = _engine()
        try:
            return re2.compile(self._regex, options)
        except re2.error as error:
            (reason,) = error.args
            text = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
            raise PatternError(text) from error


@cache
def _engine() -> tuple[Any, Any]:
    """Return the module `re2` and the options for all expressions."""
    try:
        import re2
    except ImportError as error:
        raise PatternError(
            "this broker has no RE2 to match it with, because the package google-re2 is not"
            " installed"
        ) from error
    options = re2.Options()
    options.max_mem = MAX_MEM_BYTES
    options.never_capture = True
    options.log_errors = False
    return re2, options
