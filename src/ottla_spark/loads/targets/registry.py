"""The table of all load targets. A new target is one file, and one line here.

A target's module is imported when an address names it.
"""

from __future__ import annotations

from importlib import import_module

from ottla_spark.loads.targets.target import Target

TARGETS: dict[str, str] = {
    "parquet": "ottla_spark.loads.targets.parquet",
    "delta": "ottla_spark.loads.targets.delta",
    "iceberg": "ottla_spark.loads.targets.iceberg",
}


def target_of(scheme: str) -> Target:
    """Return the target with this scheme."""
    target = import_module(TARGETS[scheme]).TARGET
    assert isinstance(target, Target)
    assert target.scheme == scheme, f"{TARGETS[scheme]} has the scheme {target.scheme}"
    return target


def all_targets() -> list[Target]:
    """Return all targets, in the order of the table."""
    return [target_of(scheme) for scheme in TARGETS]


def address_forms() -> str:
    """Return what addresses look like, for messages: `parquet:PATH, delta:PATH or ...`."""
    return _either([target.form for target in all_targets()])


def upsert_schemes() -> str:
    """Return the targets that can replace rows by a key, for messages: `delta: or iceberg:`."""
    return _either([f"{each.scheme}:" for each in all_targets() if not each.why_no_upsert(1)])


def compaction_schemes() -> str:
    """Return the targets that can be compacted, for messages."""
    return _either([f"{each.scheme}:" for each in all_targets() if not each.why_no_compaction()])


def several_topics_schemes() -> str:
    """Return the targets that take several topics, for messages."""
    return _either([f"{each.scheme}:" for each in all_targets() if each.takes_several_topics])


def _either(words: list[str]) -> str:
    *most, last = words
    return f"{', '.join(most)} or {last}" if most else last
