"""What all logs of a broker share: the ports, the pool of open files, the trash."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.log.append_rules import AppendRules, InlineBudget
from ottla.log.file_pool import FilePool
from ottla.log.segment.index_jobs import IndexJobs
from ottla.log.segment.last_write import LastWrites
from ottla.log.trash import Trash
from ottla.ports import Background, Clock, Files, Random

if TYPE_CHECKING:
    from ottla.config.topic import LogConfig


_MOST_SHARED_RULES = 1000


class Resources:
    """Handed to every log of a broker."""

    __slots__ = (
        "_append_rules",
        "_inline_budget",
        "background",
        "clock",
        "files",
        "has_time",
        "index_jobs",
        "last_writes",
        "notes",
        "on_error",
        "pool",
        "random",
        "trash",
    )

    def __init__(
        self,
        files: Files,
        pool: FilePool,
        background: Background,
        clock: Clock,
        random: Random,
    ) -> None:
        self.files = files
        self.pool = pool
        self.background = background
        self.clock = clock
        self.random = random
        self.trash = Trash(files, background)
        self.notes: list[str] = []
        """Messages for the operator. Whoever logs them clears the list."""
        self.on_error: Callable[[str, OSError], None] = _raise
        """Called with the directory of a log when work in the background fails."""
        self.has_time: Callable[[], bool] = lambda: True
        """Returns False if this wake-up has no time left to begin a segment for an append."""
        self.index_jobs = IndexJobs(self)
        self.last_writes = LastWrites()
        self._inline_budget = InlineBudget()
        self._append_rules: dict[LogConfig, AppendRules] = {}

    def append_rules(self, config: LogConfig) -> AppendRules:
        """Return the append rules of these settings; logs with equal settings share them.

        Settings with lists, which may be long, are not kept: they would outlive their topics.
        """
        if config.has_lists:
            return AppendRules(config, self._inline_budget)
        rules = self._append_rules.get(config)
        if rules is None:
            if len(self._append_rules) >= _MOST_SHARED_RULES:
                self._append_rules.clear()  # logs keep the rules that they use
            rules = self._append_rules[config] = AppendRules(config, self._inline_budget)
        return rules


def _raise(directory: str, error: OSError) -> None:
    raise error
