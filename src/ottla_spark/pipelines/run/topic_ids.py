"""Detects topics that were deleted and created again while a pipeline did not run.

While it runs, the data source detects this. Between runs only the topic ids tell. The state
directory keeps them in `topics.json`, if it is on this machine.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path

from ottla.client.topics.topics import list_topics
from ottla_spark.pipelines.cluster import connect
from ottla_spark.pipelines.run.failures import QueryFailed
from ottla_spark.pipelines.spec.model import PipelineSpec, TopicSource

_FILE = "topics.json"


def check_topic_ids(spec: PipelineSpec) -> None:
    """Raise QueryFailed if a topic was recreated, unless its source ignores data loss."""
    sources = [source for source in spec.sources.values() if isinstance(source, TopicSource)]
    if not sources or "://" in spec.state_path:
        return
    state = Path(spec.state_path)
    with connect(spec) as client:
        now = {found.name: found.topic_id for found in list_topics(client) if found.topic_id}
    before = _read_ids(state / _FILE)
    changed = {name for name, topic_id in now.items() if before.get(name, topic_id) != topic_id}
    if changed and any(state.glob("*/offsets/*")):
        for source in sources:
            _check_source(source, sorted(filter(source_reads(source), changed)))
    read = {
        name: found for name, found in now.items() if any(source_reads(s)(name) for s in sources)
    }
    _write_ids(state / _FILE, before | read)


def source_reads(source: TopicSource) -> Callable[[str], bool]:
    """Return a function that returns True if the source reads the topic with a name."""
    if source.pattern is None:
        names = {topic.text for topic in source.topics}
        return names.__contains__
    pattern = re.compile(source.pattern.text)
    return lambda name: pattern.search(name) is not None


def _check_source(source: TopicSource, changed: list[str]) -> None:
    options = {name.lower(): value.text.lower() for name, value in source.options.items()}
    if not changed or options.get("failondataloss") == "false":
        return
    raise QueryFailed(
        f"sources.{source.name}: {changed[0]} was deleted and created again since the last run."
        " Records of the old topic that were not read are lost. Use another state directory to"
        " start from the beginning, or set failOnDataLoss: false in the options of the source to"
        " continue at the same offsets"
    )


def _read_ids(path: Path) -> dict[str, str]:
    if not path.exists():
        return {}
    try:
        ids = json.loads(path.read_text())
        return {str(name): str(topic_id) for name, topic_id in ids.items()}
    except (ValueError, AttributeError, OSError) as error:
        raise QueryFailed(f"state: {path} cannot be read: {error}") from None


def _write_ids(path: Path, ids: dict[str, str]) -> None:
    """Write the ids atomically."""
    aside = path.with_suffix(".new")
    aside.write_text(json.dumps(ids, indent=2, sort_keys=True) + "\n")
    os.replace(aside, path)
