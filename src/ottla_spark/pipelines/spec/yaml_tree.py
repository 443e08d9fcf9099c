"""Parses YAML into a tree with line numbers.

The tree is built from the parser's events with an explicit stack. Limits on size and depth, and
the refusal of aliases (which make a small file large), protect memory. Two equal keys are a
problem; most YAML readers silently take the last one.

Scalars keep their text: `topic: 12` and `name: on` mean the topic "12" and the name "on".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import yaml

from ottla_spark.pipelines.spec.problems import WHOLE_FILE, Problem, Problems

MAX_BYTES: Final = 1024 * 1024
MAX_DEPTH: Final = 20
_PLAIN_TAGS: Final = "tag:yaml.org,2002:"
_NUMBERS: Final = ("int", "float", "bool")


@dataclass(frozen=True)
class Scalar:
    """One value: its text and its first line. For a block, that is the first line of the text."""

    line: int
    text: str
    kind: str = "str"
    is_block: bool = False

    @property
    def is_null(self) -> bool:
        """True if the value is empty or null."""
        return self.kind == "null"

    def value(self) -> Plain:
        """Return the value that YAML gives the text."""
        if self.is_null:
            return None
        return _number(self.text) if self.kind in _NUMBERS else self.text

    def line_of(self, index: int) -> int:
        """Return the line of the file that has the text's character `index`.

        For `|` blocks this is exact. For other styles it is the first line.
        """
        return self.line + self.text.count("\n", 0, index) if self.is_block else self.line


@dataclass(frozen=True)
class Sequence:
    """A list of values."""

    line: int
    items: list[Node] = field(default_factory=list)


@dataclass(frozen=True)
class Mapping:
    """Keys and values. Each key occurs once."""

    line: int
    entries: dict[str, Node] = field(default_factory=dict)
    key_lines: dict[str, int] = field(default_factory=dict)


Node: TypeAlias = Scalar | Sequence | Mapping
Plain: TypeAlias = bool | int | float | str | list["Plain"] | dict[str, "Plain"] | None


def plain(node: Node) -> Plain:
    """Return a node as plain Python values."""
    if isinstance(node, Mapping):
        return {key: plain(value) for key, value in node.entries.items()}
    if isinstance(node, Sequence):
        return [plain(item) for item in node.items]
    return node.value()


class _Unreadable(Exception):
    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line


@dataclass
class _Open:
    """A collection that is still being read. `key` is a key without its value."""

    node: Sequence | Mapping
    where: str
    key: Scalar | None = None


def parse(text: str, problems: Problems) -> Mapping | None:
    """Return the top mapping of a file; None, with a problem, if it is not a YAML mapping."""
    if len(text) > MAX_BYTES:
        problems.add(WHOLE_FILE, "", f"is too large: a pipeline file has at most {MAX_BYTES} bytes")
        return None
    try:
        top = _top(text, problems)
    except _Unreadable as error:
        problems.add(error.line, "", str(error))
        return None
    except yaml.YAMLError as error:
        problems.add(*_syntax_problem(error))
        return None
    if isinstance(top, Mapping):
        return top
    problems.add(1, "", "a pipeline file needs keys such as `sources:` and `sinks:` at the top")
    return None


def _syntax_problem(error: yaml.YAMLError) -> Problem:
    if isinstance(error, yaml.MarkedYAMLError):
        mark = error.problem_mark or error.context_mark
        words = error.problem or error.context or "not YAML"
        return Problem(mark.line + 1 if mark else WHOLE_FILE, "", f"not YAML: {words}")
    if isinstance(error, yaml.reader.ReaderError):
        return Problem(WHOLE_FILE, "", f"not YAML: character {error.position}: {error.reason}")
    return Problem(WHOLE_FILE, "", f"not YAML: {error}")


def _top(text: str, problems: Problems) -> Node | None:
    loader = yaml.SafeLoader(text)
    try:
        builder = _Builder(problems)
        for event in _events(loader):
            builder.take(event, loader)
        return builder.top
    finally:
        loader.dispose()


def _events(loader: yaml.SafeLoader) -> Iterator[yaml.Event]:
    documents = 0
    while loader.check_event():
        event: yaml.Event = loader.get_event()  # type: ignore[no-untyped-call]
        if isinstance(event, yaml.DocumentStartEvent):
            documents += 1
            if documents > 1:
                raise _Unreadable(_line(event), "only one pipeline per file: remove this one")
        yield event


class _Builder:
    """Turns events into nodes."""

    def __init__(self, problems: Problems) -> None:
        self.top: Node | None = None
        self._problems = problems
        self._open: list[_Open] = []

    def take(self, event: yaml.Event, loader: yaml.SafeLoader) -> None:
        line = _line(event)
        if isinstance(event, yaml.AliasEvent):
            raise _Unreadable(line, f"*{event.anchor}: aliases are not supported; repeat the value")
        if isinstance(event, yaml.ScalarEvent):
            self._place(_scalar(event, loader))
        elif isinstance(event, yaml.SequenceStartEvent):
            self._descend(Sequence(line))
        elif isinstance(event, yaml.MappingStartEvent):
            self._descend(Mapping(line))
        elif isinstance(event, yaml.CollectionEndEvent):
            self._open.pop()

    def _descend(self, node: Sequence | Mapping) -> None:
        if len(self._open) >= MAX_DEPTH:
            raise _Unreadable(node.line, f"is nested more than {MAX_DEPTH} levels deep")
        self._open.append(_Open(node, self._place(node)))

    def _place(self, node: Node) -> str:
        """Add a node to its parent; return the path of its keys."""
        if not self._open:
            self.top = node
            return ""
        parent = self._open[-1]
        if isinstance(parent.node, Sequence):
            parent.node.items.append(node)
            return parent.where
        key, parent.key = parent.key, None
        if key is not None:
            return self._enter(parent.node, key, node, parent.where)
        if not isinstance(node, Scalar):
            raise _Unreadable(node.line, "a key must be a word, not a list or a mapping")
        parent.key = node
        return parent.where

    def _enter(self, parent: Mapping, key: Scalar, node: Node, where: str) -> str:
        path = f"{where}.{key.text}" if where else key.text
        first = parent.key_lines.setdefault(key.text, key.line)
        if key.text in parent.entries:
            self._problems.add(key.line, path, f"{key.text!r} occurs twice: first in line {first}")
        else:
            parent.entries[key.text] = node
        return path


def _line(event: yaml.Event) -> int:
    assert event.start_mark is not None, "events of a text have positions"
    return event.start_mark.line + 1


def _scalar(event: yaml.ScalarEvent, loader: yaml.SafeLoader) -> Scalar:
    line = _line(event)
    if event.tag is not None and not event.tag.startswith(_PLAIN_TAGS):
        raise _Unreadable(line, f"the tag {event.tag} is not supported")
    found = loader.resolve(yaml.ScalarNode, event.value, event.implicit)  # type: ignore[no-untyped-call]
    tag: str = event.tag or found
    if event.style == "|":
        return Scalar(line + 1, event.value, is_block=True)
    return Scalar(line, event.value, tag.removeprefix(_PLAIN_TAGS))


def _number(text: str) -> Plain:
    try:
        value = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError):
        return text
    return value if isinstance(value, bool | int | float) else text
