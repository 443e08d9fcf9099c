"""A topic that was deleted and created again between two loads has other records at old offsets.

While a load runs the data source notices this. Between loads only the id of the topic tells,
which is kept beside the checkpoint: Spark's own log of offsets has no room for it.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla_spark.loads.errors import DataLost
from ottla_spark.loads.options.load_options import LoadOptions
from ottla_spark.loads.run.topic_sample import Ends
from ottla_spark.loads.state.load_directory import Workplace


def check_recreated(
    workplace: Workplace, ends: Ends, options: LoadOptions, say: Callable[[str], None]
) -> None:
    """DataLost if the topic is not the one that was loaded, unless going on is allowed."""
    before = workplace.topic_id()
    if not ends.topic_id or ends.topic_id == before:
        return
    positions = workplace.checkpoint.positions()
    if before is not None and positions:
        what = (
            f"{options.topic} was deleted and created again since it was last loaded, up to"
            f" {_told(positions)}: what came before its end and was not loaded is lost"
        )
        if not options.allow_data_loss:
            raise DataLost(
                f"{what}. Load the new topic into another table; or, with --allow-data-loss, into"
                " this one what it has from these offsets on"
            )
        say(f"{what}; of the new topic, what it has from these offsets on is loaded")
    workplace.note_topic_id(ends.topic_id)


def _told(positions: dict[tuple[str, str], int]) -> str:
    ordered = sorted((int(partition), offset) for (_, partition), offset in positions.items())
    shown = ", ".join(f"offset {offset} of partition {p}" for p, offset in ordered[:3])
    return shown + (f" and {len(ordered) - 3} more" if len(ordered) > 3 else "")
