"""What a load has done so far, as the progress bar and the summary tell it."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Tally:
    """Counts since this run began; `news` are fields that were met beyond the schema."""

    records: int = 0
    dead_letters: int = 0
    files: int = 0
    size: int = 0
    batches: int = 0
    compacted_files: int = 0
    leftovers: int = 0
    news: dict[str, str] = field(default_factory=dict)
    added_fields: dict[str, str] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """Records that went into the table."""
        return self.records - self.dead_letters
