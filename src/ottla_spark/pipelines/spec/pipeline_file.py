"""Reads a pipeline file into a `PipelineSpec`, and reports every mistake with its line.

Parts with mistakes are left out, so that the rest can still be checked. A spec may run only if
there is no problem.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from ottla_spark.pipelines.spec.dead_letters import dead_letter_ends
from ottla_spark.pipelines.spec.durations import duration_ms
from ottla_spark.pipelines.spec.fields import Fields
from ottla_spark.pipelines.spec.model import (
    DEFAULT_BOOTSTRAP_SERVERS,
    Always,
    Every,
    Once,
    PipelineSpec,
    Sink,
    Source,
    Step,
    TableSink,
    TopicSource,
    Trigger,
)
from ottla_spark.pipelines.spec.problems import WHOLE_FILE, Problems, closest
from ottla_spark.pipelines.spec.sinks import read_sink
from ottla_spark.pipelines.spec.sources import read_source
from ottla_spark.pipelines.spec.steps import read_step
from ottla_spark.pipelines.spec.yaml_tree import Mapping, Scalar, parse

RELATION_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
FILE_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
_TRIGGER_WORDS: Final = ("once", "always")


def read_file(file: Path, problems: Problems) -> PipelineSpec | None:
    """Read a file; return None, with a problem, if it cannot be read at all."""
    try:
        text = file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        problems.add(WHOLE_FILE, "", f"not UTF-8 text: byte {error.start}: {error.reason}")
        return None
    except OSError as error:
        problems.add(WHOLE_FILE, "", f"cannot be read: {error.strerror or error}")
        return None
    return read_text(text, file, problems)


def read_text(text: str, file: Path, problems: Problems) -> PipelineSpec | None:
    """Read the text of a file. Relative paths in it start at the directory of `file`."""
    top = parse(text, problems)
    if top is None:
        return None
    fields = Fields(top, "", problems, top.line)
    name = _name(fields, file)
    servers = fields.word("bootstrap_servers")
    names = [*_names_below(top, "sources"), *_names_below(top, "steps")]
    spec = PipelineSpec(
        file=file,
        name=name,
        bootstrap_servers=servers.text if servers else DEFAULT_BOOTSTRAP_SERVERS,
        bootstrap_line=fields.line_of("bootstrap_servers"),
        state=fields.word("state") or Scalar(fields.line, f"state/{name}"),
        trigger=_trigger(fields),
        kafka=fields.pairs("kafka"),
        conf=fields.pairs("conf"),
        catalogs=_catalogs(fields),
        sources=_sources(fields, file),
        steps=_steps(fields, names),
        sinks=_sinks(fields, file, names),
    )
    fields.done()
    _add_dead_letters(spec, problems)
    _check_names(spec, problems)
    _check_tables(spec, problems)
    return spec


def _add_dead_letters(spec: PipelineSpec, problems: Problems) -> None:
    """Add the sources and sinks of the key `dead_letters`."""
    for source in list(spec.sources.values()):
        ends = dead_letter_ends(source, spec.file) if isinstance(source, TopicSource) else None
        if ends is None:
            continue
        added, sink = ends
        if added.name in {*spec.sources, *spec.steps, *spec.sinks}:
            where = f"sources.{source.name}.dead_letters"
            problems.add(sink.line, where, f"the name {added.name} is taken: rename the other one")
            continue
        spec.sources[added.name] = added
        spec.sinks[sink.name] = sink


def _names_below(top: Mapping, key: str) -> list[str]:
    """Return all names of a section, including entries with mistakes."""
    section = top.entries.get(key)
    return list(section.entries) if isinstance(section, Mapping) else []


def _name(fields: Fields, file: Path) -> str:
    written = fields.word("name")
    name = written.text if written else file.stem
    if not FILE_NAME.fullmatch(name):
        fields.complain("name", f"{name!r} should be letters, digits, dots, dashes and underscores")
        return "pipeline"
    return name


def _trigger(fields: Fields) -> Trigger:
    """Read `once`, `always`, `every 5m`, or `10s` for a micro-batch every ten seconds."""
    written = fields.word("trigger")
    if written is None or written.text == "always":
        return Always()
    if written.text == "once":
        return Once()
    scheduled = written.text.startswith("every ")
    interval_ms = duration_ms(written.text.removeprefix("every "))
    if not interval_ms:
        hint = closest(written.text, _TRIGGER_WORDS)
        fields.complain(
            "trigger", f"{written.text!r} should be once, always, every 5m, or 10s{hint}"
        )
        return Always()
    return Every(interval_ms) if scheduled else Always(interval_ms)


def _catalogs(fields: Fields) -> dict[str, dict[str, Scalar]]:
    """Read the properties of Iceberg catalogs by name."""
    section = fields.below("catalogs")
    return {} if section is None else {name: section.pairs(name) for name in section.names()}


def _sources(fields: Fields, file: Path) -> dict[str, Source]:
    found: dict[str, Source] = {}
    for name, below in _entries(fields, "sources", RELATION_NAME):
        source = read_source(name, below, file)
        below.done()
        if source is not None:
            found[name] = source
    return found


def _steps(fields: Fields, names: list[str]) -> dict[str, Step]:
    found: dict[str, Step] = {}
    for name, below in _entries(fields, "steps", RELATION_NAME):
        step = read_step(name, below, names)
        below.done()
        if step is not None:
            found[name] = step
    return found


def _sinks(fields: Fields, file: Path, names: list[str]) -> dict[str, Sink]:
    found: dict[str, Sink] = {}
    for name, below in _entries(fields, "sinks", FILE_NAME):
        sink = read_sink(name, below, file, names)
        below.done()
        if sink is not None:
            found[name] = sink
    return found


def _entries(fields: Fields, key: str, pattern: re.Pattern[str]) -> list[tuple[str, Fields]]:
    """Return the named mappings below a key. Only `steps` may be missing."""
    section = fields.below(key)
    if section is None or not section.names():
        if key != "steps" and not fields.problems.about(key):
            fields.complain(key, f"is missing: a pipeline needs {key}")
        return []
    found = []
    for name in section.names():
        if not pattern.fullmatch(name):
            allowed = "letters, digits and underscores, and not start with a digit"
            if pattern is FILE_NAME:
                allowed = "letters, digits, dots, dashes and underscores"
            section.complain(name, f"the name {name!r} should be {allowed}")
        elif (below := section.below(name)) is not None:
            found.append((name, below))
        elif not fields.problems.about(section.path(name)):
            section.complain(name, "is empty")
    return found


def _check_names(spec: PipelineSpec, problems: Problems) -> None:
    """Report equal names of sources and steps. SQL ignores case."""
    seen: dict[str, tuple[str, int]] = {}
    for section, nodes in (("sources", spec.sources), ("steps", spec.steps)):
        for node in nodes.values():
            first = seen.setdefault(node.name.lower(), (f"{section}.{node.name}", node.line))
            if first != (f"{section}.{node.name}", node.line):
                problems.add(
                    node.line,
                    f"{section}.{node.name}",
                    f"has the same name as {first[0]} in line {first[1]}",
                )


def _check_tables(spec: PipelineSpec, problems: Problems) -> None:
    """Report tables with two sinks, which would overwrite each other's batch numbers."""
    seen: dict[str, str] = {}
    for sink in spec.sinks.values():
        if isinstance(sink, TableSink):
            first = seen.setdefault(sink.place.location, sink.name)
            if first != sink.name:
                problems.add(
                    sink.place.written.line,
                    f"sinks.{sink.name}.table",
                    f"sinks.{first} already writes this table; UNION the two in one step",
                )
