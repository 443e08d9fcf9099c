"""Detects a topic that was deleted and created again between two loads.

Such a topic has other records at the same offsets. While a load runs, the data source detects
this. Between loads only the topic id tells. The load directory keeps it, because Spark's
checkpoint cannot.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla_spark.loads.errors import DataLost
from ottla_spark.loads.options.load_options import LoadOptions
from ottla_spark.loads.run.topic_sample import TopicOffsets
from ottla_spark.loads.state.load_directory import LoadDirectory


def check_recreated(
    directory: LoadDirectory,
    offsets: TopicOffsets,
    options: LoadOptions,
    say: Callable[[str], None],
) -> None:
    """Raise DataLost if the topic was recreated, unless --allow-data-loss is set."""
    before = directory.topic_id()
    if not offsets.topic_id or offsets.topic_id == before:
        return
    positions = directory.checkpoint.positions()
    if before is not None and positions:
        what = (
            f"{options.topic} was deleted and created again since it was last loaded, up to"
            f" {_listed(positions)}. Records of the old topic that were not loaded are lost"
        )
        if not options.allow_data_loss:
            raise DataLost(
                f"{what}. Load the new topic into another table, or use --allow-data-loss to load"
                " it into this one from these offsets on"
            )
        say(f"{what}. The new topic is loaded from these offsets on")
    directory.set_topic_id(offsets.topic_id)


def _listed(positions: dict[tuple[str, str], int]) -> str:
    ordered = sorted((int(partition), offset) for (_, partition), offset in positions.items())
    shown = ", ".join(f"offset {offset} of partition {p}" for p, offset in ordered[:3])
    return shown + (f" and {len(ordered) - 3} more" if len(ordered) > 3 else "")
