"""Shared code of the two generators: sizes and Struct codes of types, and a source builder.

The builder stores the field of every line of generated source. So an error in generated code
can name the field, without any cost as long as there is no error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from struct import Struct
from types import CodeType

from ottla.wire.message import Field, Message

# Struct codes of the types of fixed size.
FIXED = {
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
    "bool": "?",
    "uuid": "16s",
}
COMPACT_LENGTH = "B"  # the first byte of an unsigned varint
MAX_REMEMBERED = 64


def fixed_size(type_: str) -> int:
    """Return the size of a fixed-size type."""
    return Struct(">" + FIXED[type_]).size


def length_code(type_: str, flexible: bool) -> str:
    """Return the Struct code of the length, or of its first byte, before a value."""
    if flexible:
        return COMPACT_LENGTH
    return "h" if type_ == "string" else "i"


def minimal_size(field: Field, version: int, flexible: bool) -> int:
    """Return the minimum size of a field."""
    if field.tag is not None:
        return 0
    if field.type == "struct":
        assert isinstance(field.of, type)
        nullable = field.is_nullable(version)
        return 1 if nullable else minimal_struct_size(field.of, version, flexible)
    return minimal_value_size(field.type, flexible)


def minimal_value_size(type_: str, flexible: bool) -> int:
    """Return the minimum size of a value that is not a struct."""
    if type_ in FIXED:
        return fixed_size(type_)
    return Struct(">" + length_code(type_, flexible)).size


def minimal_struct_size(message: type[Message], version: int, flexible: bool) -> int:
    """Return the minimum size of a struct, including its tagged fields section."""
    fields = (field for field in message.FIELDS if field.exists(version))
    return flexible + sum(minimal_size(field, version, flexible) for field in fields)


def is_flexible(message: type[Message], version: int) -> bool:
    """Return True if this version of a message is flexible: it has compact encoding (KIP-482)."""
    first = message.FIRST_FLEXIBLE_VERSION
    return first is not None and version >= first


class Repeated(dict[int, Callable[..., object]]):
    """`pack` or `unpack_from` functions for n values of one code, created on first use."""

    def __init__(self, method: str, code: str) -> None:
        super().__init__()
        self.method = method
        self.code = code

    def __missing__(self, count: int) -> Callable[..., object]:
        function: Callable[..., object] = getattr(Struct(f">{count}{self.code}"), self.method)
        if count <= MAX_REMEMBERED:
            self[count] = function
        return function


class Source:
    """Generated Python source: indented lines, names, and the constants they use."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.fields: list[str] = []  # the field of each line
        self.constants: dict[str, object] = {}
        self._indent = ""
        self.path = ""  # the field of the lines that are added next
        self._names = 0

    def add(self, line: str) -> None:
        """Add a line at the current indentation."""
        self.lines.append(self._indent + line)
        self.fields.append(self.path)

    def name(self, prefix: str) -> str:
        """Return a new local name."""
        self._names += 1
        return f"{prefix}{self._names}"

    def constant(self, prefix: str, value: object) -> str:
        """Return the name of a constant for generated code."""
        name = self.name(prefix)
        self.constants[name] = value
        return name

    @contextmanager
    def block(self, line: str) -> Iterator[None]:
        """Add a line that ends in a colon, and indent the lines added inside."""
        self.add(line)
        self._indent += "    "
        yield
        self._indent = self._indent[4:]

    @contextmanager
    def at(self, path: str) -> Iterator[None]:
        """Assign the lines added inside to the field at this path."""
        before, self.path = self.path, path
        yield
        self.path = before

    def below(self, name: str) -> str:
        """Return the path of a field of the current struct."""
        return f"{self.path}.{name}" if self.path else name

    def field_at(self, line_number: int) -> str:
        """Return the field of a line (counted from 1); empty for the message itself."""
        return self.fields[line_number - 1]

    def compile(self, title: str) -> Callable[..., object]:
        """Compile the source and return its function `run`."""
        code: CodeType = compile("\n".join(self.lines), f"<{title}>", "exec")
        scope = dict(self.constants)
        exec(code, scope)
        function = scope["run"]
        assert callable(function)
        return function
