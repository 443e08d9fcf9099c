"""What the two code generators share: sizes and Struct codes of types, and a source builder.

The builder remembers for every line of generated source which field it is about, so an
error inside generated code can be reported with the name of the field at no cost before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from struct import Struct
from types import CodeType

from ottla.wire.message import Field, Message

# Struct codes of the types that take the same number of bytes whatever their value.
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
    """Bytes that every value of a fixed type takes."""
    return Struct(">" + FIXED[type_]).size


def length_code(type_: str, flexible: bool) -> str:
    """Struct code of the length (or its first byte) in front of a value of variable size."""
    if flexible:
        return COMPACT_LENGTH
    return "h" if type_ == "string" else "i"


def minimal_size(field: Field, version: int, flexible: bool) -> int:
    """The least number of bytes this field takes in a message."""
    if field.tag is not None:
        return 0
    if field.type == "struct":
        assert isinstance(field.of, type)
        nullable = field.is_nullable(version)
        return 1 if nullable else minimal_struct_size(field.of, version, flexible)
    return minimal_value_size(field.type, flexible)


def minimal_value_size(type_: str, flexible: bool) -> int:
    """The least number of bytes a value takes that is not a struct."""
    if type_ in FIXED:
        return fixed_size(type_)
    return Struct(">" + length_code(type_, flexible)).size


def minimal_struct_size(message: type[Message], version: int, flexible: bool) -> int:
    """The least number of bytes a struct takes, its section of tagged fields included."""
    fields = (field for field in message.FIELDS if field.exists(version))
    return flexible + sum(minimal_size(field, version, flexible) for field in fields)


def is_flexible(message: type[Message], version: int) -> bool:
    """Whether this version of a whole message has the compact encoding of KIP-482."""
    first = message.FIRST_FLEXIBLE_VERSION
    return first is not None and version >= first


class Repeated(dict[int, Callable[..., object]]):
    """`pack` or `unpack_from` for n values of one code, made when first needed."""

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
    """Python source under construction: indented lines, names, and the constants they use."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.fields: list[str] = []  # the field each line is about
        self.constants: dict[str, object] = {}
        self._indent = ""
        self.path = ""  # the field that lines added now are about
        self._names = 0

    def add(self, line: str) -> None:
        """One more line at the current indentation."""
        self.lines.append(self._indent + line)
        self.fields.append(self.path)

    def name(self, prefix: str) -> str:
        """A local name that is not used yet."""
        self._names += 1
        return f"{prefix}{self._names}"

    def constant(self, prefix: str, value: object) -> str:
        """A name for a value that generated code uses."""
        name = self.name(prefix)
        self.constants[name] = value
        return name

    @contextmanager
    def block(self, line: str) -> Iterator[None]:
        """A line ending in a colon, and what belongs under it."""
        self.add(line)
        self._indent += "    "
        yield
        self._indent = self._indent[4:]

    @contextmanager
    def at(self, path: str) -> Iterator[None]:
        """The lines added inside are about the field at this path."""
        before, self.path = self.path, path
        yield
        self.path = before

    def below(self, name: str) -> str:
        """The path of a field of the struct that lines are about now."""
        return f"{self.path}.{name}" if self.path else name

    def field_at(self, line_number: int) -> str:
        """The field that a line (counted from 1) is about; empty for the message itself."""
        return self.fields[line_number - 1]

    def compile(self, title: str) -> Callable[..., object]:
        """The function `run` that the source defines."""
        code: CodeType = compile("\n".join(self.lines), f"<{title}>", "exec")
        scope = dict(self.constants)
        exec(code, scope)
        function = scope["run"]
        assert callable(function)
        return function
