"""The result of a load."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from ottla_spark.loads.errors import DEAD_LETTERS, DONE
from ottla_spark.loads.options.load_options import LoadOptions
from ottla_spark.loads.run.tally import Tally

JsonValue: TypeAlias = "str | int | float | dict[str, str]"


@dataclass(frozen=True)
class LoadResult:
    """The result of a load that did not fail."""

    options: LoadOptions
    seconds: float
    tally: Tally = field(default_factory=Tally)
    dead_letters: str = ""
    lag: int = 0

    @property
    def exit_code(self) -> int:
        """0, or 3 if there are dead letters."""
        return DEAD_LETTERS if self.tally.dead_letters else DONE

    @property
    def rows_per_second(self) -> float:
        """Records per second over the whole run."""
        return self.tally.records / self.seconds if self.seconds else 0.0

    def as_json(self) -> dict[str, JsonValue]:
        """Return the result as JSON. The names are stable."""
        tally = self.tally
        return {
            "topic": self.options.topic,
            "table": str(self.options.to),
            "group": self.options.group_id,
            "records": tally.records,
            "rows": tally.rows,
            "dead_letters": tally.dead_letters,
            "dead_letters_to": self.dead_letters if tally.dead_letters else "",
            "lag": self.lag,
            "batches": tally.batches,
            "files": tally.files,
            "bytes": tally.size,
            "compacted_files": tally.compacted_files,
            "leftovers_removed": tally.leftovers,
            "new_fields": dict(tally.new_fields),
            "added_fields": dict(tally.added_fields),
            "seconds": round(self.seconds, 3),
            "records_per_second": round(self.rows_per_second, 1),
        }
