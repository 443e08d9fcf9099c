"""Generates the function that encodes one version of one message.

As in `decoding`, nested structs are unrolled into one function. Adjacent fields of fixed size,
and the length after them, are packed by one Struct. Tagged fields with their default value are
left out (KIP-482).

A large message is encoded in steps, as in `decoding`. What a step has encoded is joined, because
many small pieces take several times the memory.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from struct import error as struct_error
from types import TracebackType

from ottla.wire.layout import COMPACT_LENGTH, FIXED, Repeated, Source, length_code
from ottla.wire.message import Field, Message
from ottla.wire.primitives import ONE_BYTE, uvarint

ITEMS_A_STEP = 32
NUMBERS_AN_ITEM = 64
"""How many numbers of an array take about the time of one item."""

PACK = {type_: Repeated("pack", code) for type_, code in FIXED.items()}
NAMES: dict[str, object] = {
    "broken": (struct_error, TypeError, AttributeError, UnicodeEncodeError),
    "one_byte": ONE_BYTE,
    "uvarint": uvarint,
}


class EncodeError(ValueError):
    """This version cannot represent the message. This is a bug in the code that created it."""


def located(error: Exception, title: str, source: Source) -> EncodeError:
    """Return the error of generated code with the name of the field."""
    trace = error.__traceback__
    assert isinstance(trace, TracebackType)
    field = source.field_at(trace.tb_lineno)
    return EncodeError(f"{title}: {field or 'one of its fields'}: {error}")


def generate_encoder(
    message: type[Message],
    version: int,
    flexible: bool,
    *,
    in_steps: bool = False,
    in_parts: bool = False,
) -> Callable[..., bytes]:
    """Return the function message -> bytes. It raises only EncodeError.

    With `in_steps` it is a generator, which returns the bytes. With `in_parts` it returns a list of
    buffers instead, in which the contents of byte fields are not copied.
    """
    title = f"{message.__name__} v{version}"
    source = Source()
    source.constants.update(NAMES)
    source.constants["located"] = lambda error: located(error, title, source)
    with source.block("def run(message):"):
        with source.block("try:"):
            source.add("parts = []")
            encoding = _Encoding(source, version, flexible, in_steps)
            if in_steps:
                source.add(f"count, pause, chunks = 0, {ITEMS_A_STEP}, []")
                source.add("yield")
            encoding.struct(message, "message")
            encoding.flush()
            if in_steps:
                source.add("parts = chunks + parts")
            source.add("return parts" if in_parts else "return b''.join(parts)")
        with source.block("except broken as error:"):
            source.add("raise located(error) from error")
    return source.compile(f"encode {title}")  # type: ignore[return-value]


class _Encoding:
    """Generates code that writes fields in order. `run` has the fixed-size fields to emit next."""

    def __init__(self, source: Source, version: int, flexible: bool, in_steps: bool) -> None:
        self.source = source
        self.version = version
        self.flexible = flexible
        self.in_steps = in_steps
        self.parts = "parts"
        self.run: list[tuple[str, str, str]] = []  # (Struct code, expression, path of the field)

    def write(self, code: str, expression: str) -> None:
        """Add a value of fixed size to the run."""
        self.run.append((code, expression, self.source.path))

    def packed(self, run: list[tuple[str, str, str]]) -> str:
        """Return an expression for the bytes of a run."""
        if len(run) == 1 and run[0][0] == COMPACT_LENGTH:
            return f"one_byte[{run[0][1]}]"
        layout = Struct(">" + "".join(code for code, _, _ in run))
        pack = self.source.constant("pack", layout.pack)
        return f"{pack}({', '.join(expression for _, expression, _ in run)})"

    def append(self, expression: str) -> None:
        """Emit the bytes of the run."""
        first, last = self.run[0][2], self.run[-1][2]
        with self.source.at(first if first == last else f"{first} to {last}"):
            self.source.add(f"{self.parts}.append({expression})")
        self.run.clear()

    def flush(self) -> None:
        if self.run:
            self.append(self.packed(self.run))

    def flush_with_length(self, type_: str, length: str) -> None:
        """Emit the run and a length. A compact length below 128 is part of the run."""
        before = list(self.run)
        self.write(length_code(type_, self.flexible), length)
        together = self.packed(self.run)
        if self.flexible:
            apart = f"{self.packed(before)} + uvarint({length})" if before else f"uvarint({length})"
            together = f"{together} if {length} < 128 else {apart}"
        self.append(together)

    def struct(self, message: type[Message], value: str) -> None:
        tagged = []
        for field in message.FIELDS:
            if field.exists(self.version):
                if field.tag is not None:
                    tagged.append(field)
                    continue
                with self.source.at(self.source.below(field.name)):
                    self.value(field, f"{value}.{field.name}")
        if tagged:
            self.tags(message, value, tagged)
        elif self.flexible:
            self.write(COMPACT_LENGTH, "0")

    def value(self, field: Field, value: str) -> None:
        nullable = field.is_nullable(self.version)
        if field.type in FIXED:
            self.write(FIXED[field.type], value)
        elif field.type == "struct":
            assert isinstance(field.of, type)
            self.struct_value(field.of, value, nullable)
        elif field.type == "array":
            assert field.of is not None
            self.array(field.of, value, nullable)
        else:
            self.sized(field.type, value, nullable)

    def struct_value(self, message: type[Message], value: str, nullable: bool) -> None:
        made = self.source.name("o")
        self.source.add(f"{made} = {value}")
        if not nullable:
            self.struct(message, made)
            return
        self.flush()
        with self.source.block(f"if {made} is None:"):
            self.source.add(f"{self.parts}.append(b'\\xff')")
        with self.source.block("else:"):
            self.write("b", "1")
            self.struct(message, made)
            self.flush()

    def length(self, type_: str, content: str, nullable: bool, convert: str = "") -> None:
        """Emit the length of `content`. Null content is replaced by an empty value."""
        source = self.source
        length = source.name("n")
        of_content = f"len({content}) + 1" if self.flexible else f"len({content})"

        def measure() -> None:
            if convert:
                source.add(f"{content} = {content}{convert}")
            source.add(f"{length} = {of_content}")

        if nullable:
            with source.block(f"if {content} is None:"):
                source.add(f"{content} = b''")
                source.add(f"{length} = {0 if self.flexible else -1}")
            with source.block("else:"):
                measure()
        else:
            measure()
        self.flush_with_length(type_, length)

    def sized(self, type_: str, value: str, nullable: bool) -> None:
        """Emit the writing of a string or bytes."""
        content = self.source.name("s")
        self.source.add(f"{content} = {value}")
        convert = ".encode()" if type_ == "string" else ""
        self.length(type_, content, nullable, convert)
        self.source.add(f"{self.parts}.append({content})")

    def array(self, of: str | type[Message], value: str, nullable: bool) -> None:
        source = self.source
        items = source.name("items")
        source.add(f"{items} = {value}")
        self.length("array", items, nullable)
        if isinstance(of, str) and of in FIXED and of != "uuid":
            with source.block(f"if {items}:"):
                pack = source.constant("pack", PACK[of])
                source.add(f"{self.parts}.append({pack}[len({items})](*{items}))")
                if self.in_steps:
                    source.add(f"count += len({items}) // {NUMBERS_AN_ITEM}")
        elif of == "uuid":
            source.add(f"{self.parts}.extend({items})")
        else:
            self.items(of, items)

    def items(self, of: str | type[Message], items: str) -> None:
        item = self.source.name("item")
        with self.source.block(f"for {item} in {items}:"):
            if isinstance(of, str):
                self.sized(of, item, nullable=False)
            else:
                self.struct(of, item)
                self.flush()
            if self.in_steps:
                self.end_step()

    def end_step(self) -> None:
        """Emit a pause after every few items."""
        self.source.add("count += 1")
        with self.source.block("if count >= pause:"):
            self.source.add(f"pause = count + {ITEMS_A_STEP}")
            if self.parts == "parts":  # not in a tagged field, which needs its length first
                self.source.add("chunks.append(b''.join(parts))")
                self.source.add("parts.clear()")
            self.source.add("yield")

    def tags(self, message: type[Message], value: str, tagged: list[Field]) -> None:
        source = self.source
        self.flush()
        section = source.name("tags")
        source.add(f"{section} = []")
        plain = message()
        outer = self.parts
        self.parts = source.name("parts")
        for field in sorted(tagged, key=lambda field: field.tag or 0):
            with source.at(source.below(field.name)):
                self.tag(field, f"{value}.{field.name}", getattr(plain, field.name), section)
        self.parts = outer
        source.add(f"{outer}.append(uvarint(len({section})))")
        source.add(f"{outer}.extend({section})")

    def tag(self, field: Field, value: str, default: object, section: str) -> None:
        """Emit the writing of a tagged field, if its value is not the default."""
        source = self.source
        condition = "True"
        if not isinstance(default, Message):
            condition = f"{value} != {default!r}"
        with source.block(f"if {condition}:"):
            source.add(f"{self.parts} = []")
            self.value(field, value)
            self.flush()
            body = source.name("body")
            source.add(f"{body} = b''.join({self.parts})")
            append = f"{section}.append(uvarint({field.tag}) + uvarint(len({body})) + {body})"
            if isinstance(default, Message):
                append = f"if {body} != {self.encoded(default)!r}: {append}"
            source.add(append)

    def encoded(self, default: Message) -> bytes:
        return generate_encoder(type(default), self.version, self.flexible)(default)
