"""Generates the function that decodes one version of one message.

The function is flat: nested structs are unrolled, so there is no call per struct. Adjacent
fields of fixed size, and the length after them, are read by one Struct. Objects are created
without their constructor, so that each field is set once. Fields that the version does not
have get their default.

Invalid bytes do no harm. A length is compared with the remaining bytes before anything is
sliced or allocated, and a count with the remaining bytes divided by the minimum size of an
element. `unpack_from` may read past the end of a frame inside a larger buffer, but the check
after it discards the result.

A large message is decoded in steps: the function is then a generator that yields now and then, so
that the caller can do something else in between.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from struct import error as struct_error
from types import TracebackType

from ottla.wire.layout import (
    COMPACT_LENGTH,
    FIXED,
    Repeated,
    Source,
    fixed_size,
    length_code,
    minimal_struct_size,
    minimal_value_size,
)
from ottla.wire.message import Field, Message
from ottla.wire.primitives import MOST_TAGS, DecodeError, read_uvarint, skip_tags

ITEMS_A_STEP = 64
BYTES_A_STEP = 256 * 1024
NUMBERS_A_STEP = 2048
MOST_ITEMS = 100_000
"""How many items a message that is decoded in steps may have, unless the caller says otherwise.

Each takes memory and time, and not everything that is done with all of them is done in steps.
"""

NUMBERS_AN_ITEM = 4
"""How many numbers or ids take about the memory of one item."""

UNPACK = {type_: Repeated("unpack_from", code) for type_, code in FIXED.items()}
NAMES: dict[str, object] = {
    "DecodeError": DecodeError,
    "broken": (struct_error, IndexError, ValueError),
    "new": object.__new__,
    "read_uvarint": read_uvarint,
    "skip_tags": skip_tags,
}


def located(error: Exception, title: str, source: Source) -> DecodeError:
    """Return the error of generated code with the name of the field."""
    trace = error.__traceback__
    assert isinstance(trace, TracebackType)
    field = source.field_at(trace.tb_lineno)
    reason = str(error) if isinstance(error, DecodeError) else "is cut off"
    if isinstance(error, UnicodeDecodeError):
        reason = "is not UTF-8"
    return DecodeError(f"{title}: {field + ' ' if field else ''}{reason}")


def generate_decoder(
    message: type[Message],
    version: int,
    flexible: bool,
    up_to: str | None = None,
    *,
    in_steps: bool = False,
) -> Callable[..., object]:
    """Return the function (buffer, start, end) -> (message, next position).

    It raises only DecodeError. With `up_to`, it stops after the length of that field and returns
    (message, length or -1 for null, next position). With `in_steps` it is a generator.
    """
    title = f"{message.__name__} v{version}"
    source = Source()
    source.constants.update(NAMES)
    source.constants["located"] = lambda error: located(error, title, source)
    arguments = "buffer, position, end" + (", most" if in_steps else "")
    with source.block(f"def run({arguments}):"):
        with source.block("if end > len(buffer):"):
            source.add("raise DecodeError('the frame ends past its buffer')")
        if in_steps:
            source.add(f"count, pause, far = 0, {ITEMS_A_STEP}, position + {BYTES_A_STEP}")
            source.add("yield")
        with source.block("try:"):
            decoding = _Decoding(source, version, flexible, in_steps)
            if up_to is None:
                result = decoding.struct(message)
                decoding.flush()
            else:
                result = ", ".join(decoding.head(message, up_to))
            source.add(f"return {result}, position")
        with source.block("except broken as error:"):
            source.add("raise located(error) from None")
    return source.compile(f"decode {title}")


class _Decoding:
    """Generates code that reads fields in order. `run` has the fixed-size fields to emit next."""

    def __init__(self, source: Source, version: int, flexible: bool, in_steps: bool) -> None:
        self.source = source
        self.version = version
        self.flexible = flexible
        self.in_steps = in_steps
        self.end = "end"
        self.run: list[tuple[str, str, str]] = []  # (Struct code, target, path of the field)

    def read(self, code: str, target: str) -> None:
        """Add a value of fixed size to the run."""
        self.run.append((code, target, self.source.path))

    def flush(self, *, check: bool = True) -> None:
        """Emit the run. `check` is false if the next code compares the position with the end."""
        if not self.run:
            return
        layout = Struct(">" + "".join(code for code, _, _ in self.run))
        targets = ", ".join(target for _, target, _ in self.run)
        with self.source.at(self.run[0][2]):
            if layout.format == ">B":
                self.source.add(f"{targets} = buffer[position]")
            else:
                unpack = self.source.constant("unpack", layout.unpack_from)
                comma = "," if len(self.run) == 1 else ""
                self.source.add(f"{targets}{comma} = {unpack}(buffer, position)")
            self.source.add(f"position += {layout.size}")
            if check:
                self.check_position()
        self.run.clear()

    def check_position(self) -> None:
        self.fail_if(f"position > {self.end}", "is cut off")

    def fail_if(self, condition: str, reason: str) -> None:
        with self.source.block(f"if {condition}:"):
            self.source.add(f"raise DecodeError(f{reason!r})")

    def struct(self, message: type[Message]) -> str:
        """Emit a struct. Return the name of the object."""
        made = self.new(message)
        tagged = self.fields(made, message, message.FIELDS)
        if self.flexible:
            self.tags(made, tagged)
        return made

    def head(self, message: type[Message], up_to: str) -> tuple[str, str]:
        """Emit a struct up to the length of a field. Return the names of object and length."""
        made = self.new(message)
        names = [field.name for field in message.FIELDS]
        place = names.index(up_to)
        self.fields(made, message, message.FIELDS[:place])
        plain = message()
        for name in names[place:]:
            self.source.add(f"{made}.{name} = {self.default(getattr(plain, name))}")
        with self.source.at(up_to):
            length = self.length(message.FIELDS[place].type)
            self.check_position()
            if self.flexible:
                self.source.add(f"{length} -= 1")
            self.fail_if(f"{length} < -1", f"has length {{{length}}}")
        return made, length

    def new(self, message: type[Message]) -> str:
        """Emit the creation of an object without fields. Return its name."""
        made = self.source.name("o")
        self.source.add(f"{made} = new({self.source.constant('Class', message)})")
        return made

    def fields(self, made: str, message: type[Message], fields: tuple[Field, ...]) -> list[Field]:
        """Emit the fields of an object. Return its tagged fields."""
        source = self.source
        tagged = []
        plain = message()
        for field in fields:
            target = f"{made}.{field.name}"
            if field.exists(self.version) and field.tag is None:
                with source.at(source.below(field.name)):
                    self.value(field, target)
                continue
            source.add(f"{target} = {self.default(getattr(plain, field.name))}")
            if field.exists(self.version):
                tagged.append(field)
        return tagged

    def default(self, value: object) -> str:
        """Return an expression for a default. A mutable default is created for each message."""
        if isinstance(value, Message):
            return self.source.constant("Class", type(value)) + "()"
        assert not value or not isinstance(value, list)
        return repr(value)

    def value(self, field: Field, target: str) -> None:
        nullable = field.is_nullable(self.version)
        if field.type in FIXED:
            self.read(FIXED[field.type], target)
        elif field.type == "struct":
            assert isinstance(field.of, type)
            self.struct_value(field.of, target, nullable)
        elif field.type == "array":
            assert field.of is not None
            self.array(field.of, target, nullable)
        else:
            self.sized(field.type, target, nullable)

    def struct_value(self, message: type[Message], target: str, nullable: bool) -> None:
        if not nullable:
            self.source.add(f"{target} = {self.struct(message)}")
            return
        marker = self.source.name("marker")
        self.read("b", marker)
        self.flush()
        with self.source.block(f"if {marker} < 0:"):
            self.source.add(f"{target} = None")
        with self.source.block("else:"):
            made = self.struct(message)
            self.flush()
            self.source.add(f"{target} = {made}")

    def length(self, type_: str) -> str:
        """Emit the run and a length after it. Return the name of the length.

        A compact length is encoded as length + 1, and 0 means null.
        """
        length = self.source.name("n")
        self.read(length_code(type_, self.flexible), length)
        self.flush(check=False)
        if self.flexible:
            with self.source.block(f"if {length} > 127:"):
                self.source.add(
                    f"{length}, position = read_uvarint(buffer, position - 1, {self.end})"
                )
        return length

    def null(self, length: str, target: str, nullable: bool) -> None:
        """Emit the branch for null. An else branch follows."""
        with self.source.block(f"if {length} == {0 if self.flexible else -1}:"):
            if nullable:
                self.check_position()
                self.source.add(f"{target} = None")
            else:
                self.source.add("raise DecodeError('is null')")

    def stop(self, length: str, size: int = 1) -> str:
        """Emit the check that the buffer has this many bytes. Return the name of their end."""
        stop = self.source.name("stop")
        if not self.flexible:
            self.fail_if(f"{length} < 0", f"has length {{{length}}}")
            count = length
        else:
            count = f"({length} - 1)"
        scaled = count if size == 1 else f"{count} * {size}"
        self.source.add(f"{stop} = position + {scaled}")
        self.fail_if(f"{stop} > {self.end}", f"of length {{{count}}} is cut off")
        return stop

    def sized(self, type_: str, target: str, nullable: bool) -> None:
        """Emit the reading of a string or bytes."""
        length = self.length(type_)
        self.null(length, target, nullable)
        with self.source.block("else:"):
            stop = self.stop(length)
            if type_ == "string":
                self.source.add(f"{target} = str(buffer[position:{stop}], 'utf-8')")
            else:
                self.source.add(f"{target} = bytes(memoryview(buffer)[position:{stop}])")
            self.source.add(f"position = {stop}")

    def array(self, of: str | type[Message], target: str, nullable: bool) -> None:
        length = self.length("array")
        self.null(length, target, nullable)
        with self.source.block("else:"):
            if isinstance(of, str) and of in FIXED:
                self.fixed_items(of, length, target)
            else:
                self.items(of, length, target)

    def fixed_items(self, of: str, length: str, target: str) -> None:
        stop = self.stop(length, fixed_size(of))
        if self.in_steps:
            self.fixed_items_in_steps(of, stop, target)
            return
        count = f"{length} - 1" if self.flexible else length
        if of == "uuid":
            items = f"[bytes(buffer[i : i + 16]) for i in range(position, {stop}, 16)]"
        else:
            unpack = self.source.constant("unpack", UNPACK[of])
            items = f"[*{unpack}[{count}](buffer, position)] if {stop} > position else []"
        self.source.add(f"{target} = {items}")
        self.source.add(f"position = {stop}")

    def fixed_items_in_steps(self, of: str, stop: str, target: str) -> None:
        """Emit the reading of numbers or ids, many at a time."""
        source, size = self.source, fixed_size(of)
        items, until = source.name("items"), source.name("until")
        source.add(f"{target} = {items} = []")
        source.add(f"count += ({stop} - position) // {size * NUMBERS_AN_ITEM}")
        self.fail_if("count > most", "has more than {most} elements")
        with source.block(f"while position < {stop}:"):
            source.add(f"{until} = min({stop}, position + {size * NUMBERS_A_STEP})")
            if of == "uuid":
                some = f"[bytes(buffer[i : i + 16]) for i in range(position, {until}, 16)]"
            else:
                unpack = source.constant("unpack", UNPACK[of])
                some = f"{unpack}[({until} - position) // {size}](buffer, position)"
            source.add(f"{items} += {some}")
            source.add(f"position = {until}")
            with source.block(f"if position < {stop}:"):
                source.add("yield")

    def items(self, of: str | type[Message], length: str, target: str) -> None:
        """Emit the reading of items one by one, after a check of the count."""
        source = self.source
        if isinstance(of, str):
            least = minimal_value_size(of, self.flexible)
        else:
            least = max(1, minimal_struct_size(of, self.version, self.flexible))
        if self.flexible:
            source.add(f"{length} -= 1")
        else:
            self.fail_if(f"{length} < 0", f"has length {{{length}}}")
        left = f"{self.end} - position"
        room = f"({left}) // {least}" if least > 1 else left
        self.fail_if(f"{length} > {room}", f"of {{{length}}} elements is cut off")
        items = source.name("items")
        source.add(f"{target} = {items} = []")
        with source.block(f"for _ in range({length}):"):
            if isinstance(of, str):
                item = source.name("item")
                self.sized(of, item, nullable=False)
            else:
                item = self.struct(of)
                self.flush()
            source.add(f"{items}.append({item})")
            if self.in_steps:
                self.end_step()

    def end_step(self) -> None:
        """Emit a pause after every few items, and the check of their number."""
        self.source.add("count += 1")
        with self.source.block("if count > pause or position > far:"):
            self.fail_if("count > most", "has more than {most} elements")
            self.source.add(f"pause, far = count + {ITEMS_A_STEP}, position + {BYTES_A_STEP}")
            self.source.add("yield")

    def tags(self, made: str, tagged: list[Field]) -> None:
        count = self.source.name("n")
        self.read(COMPACT_LENGTH, count)
        self.flush()
        with self.source.block(f"if {count}:"):
            if tagged:
                self.known_tags(made, tagged, count)
            else:
                self.source.add(f"position = skip_tags(buffer, position - 1, {self.end})")

    def known_tags(self, made: str, tagged: list[Field], count: str) -> None:
        source, outer = self.source, self.end
        stop = source.name("stop")
        source.add(f"{count}, position = read_uvarint(buffer, position - 1, {outer})")
        self.fail_if(f"{count} > {MOST_TAGS}", f"has {{{count}}} tagged fields")
        with source.block(f"for _ in range({count}):"):
            source.add(f"tag, position = read_uvarint(buffer, position, {outer})")
            source.add(f"size, position = read_uvarint(buffer, position, {outer})")
            source.add(f"{stop} = position + size")
            self.fail_if(f"{stop} > {outer}", "tagged field {tag} is cut off")
            self.end = stop
            word = "if"
            for field in tagged:
                with (
                    source.block(f"{word} tag == {field.tag}:"),
                    source.at(source.below(field.name)),
                ):
                    self.value(field, f"{made}.{field.name}")
                    self.flush()
                    self.fail_if(f"position != {stop}", "is shorter than its size")
                word = "elif"
            self.end = outer
            source.add(f"position = {stop}")
