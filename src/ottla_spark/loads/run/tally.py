"""Counts of a running load, for the progress bar and the summary."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Tally:
    """Counts since this run started. `new_fields` are fields of records that the schema lacks."""

    records: int = 0
    dead_letters: int = 0
    files: int = 0
    size: int = 0
    batches: int = 0
    compacted_files: int = 0
    leftovers: int = 0
    new_fields: dict[str, str] = field(default_factory=dict)
    added_fields: dict[str, str] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """The records that went into the table."""
        return self.records - self.dead_letters
