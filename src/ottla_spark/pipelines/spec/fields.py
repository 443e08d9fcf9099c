"""Reads the keys of one mapping by name and type. Keys that nobody reads are mistakes.

A method that finds a mistake adds a problem and returns as if the key were missing. Reading
continues, so that other mistakes are found too.
"""

from __future__ import annotations

from collections.abc import Sequence as Items

from ottla_spark.pipelines.spec.problems import Problems, closest, listed
from ottla_spark.pipelines.spec.yaml_tree import Mapping, Node, Scalar, Sequence

_TRUE = frozenset({"true", "yes", "on"})
_FALSE = frozenset({"false", "no", "off"})
MAX_NUMBER = 2**31 - 1


class Fields:
    """The entries of one mapping."""

    def __init__(self, mapping: Mapping, where: str, problems: Problems, line: int) -> None:
        self._mapping = mapping
        self.where = where
        self.problems = problems
        self.line = line
        self._known: dict[str, None] = {}
        self._is_understood = True

    def has(self, key: str) -> bool:
        """Return whether the key exists, with any value."""
        return key in self._mapping.entries

    def line_of(self, key: str) -> int:
        """Return the line of a key; the line of the mapping if the key is missing."""
        return self._mapping.key_lines.get(key, self.line)

    def complain(self, key: str, message: str, line: int | None = None) -> None:
        """Add a problem of a key's value."""
        self.problems.add(self.line_of(key) if line is None else line, self.path(key), message)

    def path(self, key: str) -> str:
        """Return the path of keys to a value."""
        return f"{self.where}.{key}" if self.where else key

    def word(self, key: str, *, required: str = "") -> Scalar | None:
        """Return one value. `required` says why it is needed."""
        node = self._take(key)
        if node is None:
            if required:
                self.complain(key, f"is missing: {required}")
            return None
        if isinstance(node, Scalar) and node.text.strip() and not node.is_null:
            return node
        self.complain(key, "should be one value, not " + _kind(node))
        return None

    def words(self, key: str, *, required: str = "") -> tuple[Scalar, ...]:
        """Return the values of a key that holds one value or a list."""
        node = self._take(key)
        if node is None:
            if required:
                self.complain(key, f"is missing: {required}")
            return ()
        items = node.items if isinstance(node, Sequence) else [node]
        found = [item for item in items if isinstance(item, Scalar) and not item.is_null]
        if not items or len(found) < len(items):
            self.complain(key, "should be a value or a list of values")
            return ()
        return tuple(found)

    def choice(self, key: str, choices: Items[str], default: str) -> str:
        """Return one of the allowed words."""
        found = self.word(key)
        if found is None:
            return default
        if found.text not in choices:
            hint = closest(found.text, choices)
            self.complain(key, f"{found.text!r} should be {_either(choices)}{hint}", found.line)
            return default
        return found.text

    def flag(self, key: str) -> bool:
        """Return true or false; false if it is missing."""
        found = self.word(key)
        if found is None or found.text.lower() in _FALSE:
            return False
        if found.text.lower() not in _TRUE:
            self.complain(key, f"{found.text!r} should be true or false", found.line)
        return True

    def count(self, key: str) -> int | None:
        """Return a positive integer."""
        found = self.word(key)
        if found is None:
            return None
        digits = found.text if found.text.isascii() and found.text.isdigit() else ""
        if not digits or len(digits) > 10 or not 0 < int(digits) <= MAX_NUMBER:
            self.complain(key, f"{found.text!r} should be a positive integer", found.line)
            return None
        return int(digits)

    def pairs(self, key: str) -> dict[str, Scalar]:
        """Return names and their values."""
        found = self.below(key)
        if found is None:
            return {}
        values = {name: found.word(name) for name in found.names()}
        return {name: value for name, value in values.items() if value is not None}

    def below(self, key: str) -> Fields | None:
        """Return the mapping that a key holds."""
        node = self._take(key)
        if node is None:
            return None
        if isinstance(node, Mapping):
            return Fields(node, self.path(key), self.problems, self.line_of(key))
        if not (isinstance(node, Scalar) and node.is_null):
            self.complain(key, f"should have keys and values, not {_kind(node)}")
        return None

    def names(self) -> list[str]:
        """Return all keys of the mapping."""
        return list(self._mapping.entries)

    def node(self, key: str) -> Node | None:
        """Return the node of a key, of any type."""
        return self._take(key)

    def one_of(self, *keys: str) -> str | None:
        """Return the one key of several that is present. None or two of them are a problem."""
        found = [key for key in keys if self.has(key)]
        self._known.update(dict.fromkeys(keys))
        if len(found) == 1:
            return found[0]
        self._is_understood = False
        if found:
            message = f"has {listed(found)}: keep one of them"
        else:
            hints = [closest(name, keys) for name in self.names()]
            message = f"needs {_either(keys)}" + next((hint for hint in hints if hint), "")
        self.problems.add(self.line_of(found[1]) if found else self.line, self.where, message)
        return None

    def done(self) -> None:
        """Add a problem for each key that was not read.

        If `one_of` found no single key, the known keys are unclear, and nothing is added.
        """
        if not self._is_understood:
            return
        for key in self._mapping.entries:
            if key not in self._known:
                hint = closest(key, self._known) or f"; the keys are {listed(self._known)}"
                if " " in key:
                    hint = "; put text with commas or colons in quotes"
                self.complain(key, f"is not a known key{hint}")

    def _take(self, key: str) -> Node | None:
        self._known[key] = None
        return self._mapping.entries.get(key)


def _kind(node: Node) -> str:
    if isinstance(node, Mapping):
        return "keys and values"
    if isinstance(node, Sequence):
        return "a list"
    return "nothing" if node.is_null or not node.text.strip() else "a value"


def _either(words: Items[str]) -> str:
    *most, last = words
    return f"{', '.join(most)} or {last}" if most else last
