"""Regular expressions for topic names as trees, in the syntax of RE2, which Kafka uses.

A topic name has only letters, digits, '.', '_' and '-', so a set of characters is a number with
one bit for each of them. What could match other characters matches nothing.
"""

from __future__ import annotations

from typing import Final, NamedTuple, NoReturn, TypeAlias

ALPHABET: Final = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-"
MAX_LENGTH: Final = 4096
MAX_DEPTH: Final = 100
MAX_REPEAT: Final = 1000

BIT: Final = {char: 1 << position for position, char in enumerate(ALPHABET)}
ANYTHING: Final = (1 << len(ALPHABET)) - 1
_LOWER: Final = (1 << 26) - 1
_UPPER: Final = _LOWER << 26
_LETTERS: Final = _LOWER | _UPPER
_DIGITS: Final = ((1 << 10) - 1) << 52
WORD: Final = _LETTERS | _DIGITS | BIT["_"]
_PUNCTUATION: Final = BIT["_"] | BIT["."] | BIT["-"]
_HEXADECIMAL: Final = _DIGITS | 0b111111 | (0b111111 << 26)

_PERL: Final = {"d": _DIGITS, "w": WORD, "s": 0}
_POSIX: Final = {
    "alnum": _LETTERS | _DIGITS,
    "alpha": _LETTERS,
    "ascii": ANYTHING,
    "blank": 0,
    "cntrl": 0,
    "digit": _DIGITS,
    "graph": ANYTHING,
    "lower": _LOWER,
    "print": ANYTHING,
    "punct": _PUNCTUATION,
    "space": 0,
    "upper": _UPPER,
    "word": WORD,
    "xdigit": _HEXADECIMAL,
}
_UNICODE: Final = {
    "L": _LETTERS,
    "Lu": _UPPER,
    "Ll": _LOWER,
    "Latin": _LETTERS,
    "N": _DIGITS,
    "Nd": _DIGITS,
    "P": _PUNCTUATION,
    "Pc": BIT["_"],
    "Pd": BIT["-"],
    "Po": BIT["."],
}
_CONTROLS: Final = {"a": "\a", "f": "\f", "t": "\t", "n": "\n", "r": "\r", "v": "\v"}
_BOUNDARIES: Final = {"A": "start", "z": "end", "b": "word", "B": "no word"}


class PatternError(ValueError):
    """The text is not a regular expression, or it would cost too much."""


class Chars(NamedTuple):
    """One character of a set."""

    mask: int


class Boundary(NamedTuple):
    """An empty match at the start, the end, or a word boundary."""

    kind: str


class Series(NamedTuple):
    """Nodes one after the other."""

    parts: tuple[Node, ...]


class Choice(NamedTuple):
    """One of several nodes."""

    ways: tuple[Node, ...]


class Repeat(NamedTuple):
    """A node from `low` to `high` times, or at least `low` times."""

    node: Node
    low: int
    high: int | None


Node: TypeAlias = Chars | Boundary | Series | Choice | Repeat


def parse(pattern: str) -> Node:
    """Return the tree of a regular expression. Raise PatternError."""
    if len(pattern) > MAX_LENGTH:
        raise PatternError(f"it has {len(pattern)} characters, and {MAX_LENGTH} are the most")
    parser = _Parser(pattern)
    node = parser.choice(0)
    if parser.position < len(pattern):
        parser.fail("unexpected )")
    return node


class _Parser:
    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.position = 0
        self.fold = False

    def fail(self, reason: str) -> NoReturn:
        raise PatternError(f"{reason} at position {self.position}")

    def take(self, text: str) -> bool:
        """Skip `text` if it comes next."""
        if self.pattern.startswith(text, self.position):
            self.position += len(text)
            return True
        return False

    def next(self) -> str:
        if self.position >= len(self.pattern):
            self.fail("unexpected end")
        self.position += 1
        return self.pattern[self.position - 1]

    # -- structure -----------------------------------------------------------------------

    def choice(self, depth: int) -> Node:
        if depth > MAX_DEPTH:
            self.fail("nested too deeply")
        ways = [self.series(depth)]
        while self.take("|"):
            ways.append(self.series(depth))
        return ways[0] if len(ways) == 1 else Choice(tuple(ways))

    def series(self, depth: int) -> Node:
        parts: list[Node] = []
        while self.position < len(self.pattern) and self.pattern[self.position] not in "|)":
            if self.take("\\Q"):
                end = self.pattern.find("\\E", self.position)
                quoted = self.pattern[self.position : end if end >= 0 else None]
                self.position += len(quoted) + (2 if end >= 0 else 0)
                parts.extend(self.literal(char) for char in quoted)
            else:
                node = self.atom(depth)
                if node is not None:
                    parts.append(self.repeated(node))
        return parts[0] if len(parts) == 1 else Series(tuple(parts))

    def atom(self, depth: int) -> Node | None:
        """Return one node that can be repeated, None for flags."""
        char = self.next()
        if char == "(":
            return self.group(depth)
        if char == "[":
            return Chars(self.bracket())
        if char == ".":
            return Chars(ANYTHING)
        if char in "^$":
            return Boundary("start" if char == "^" else "end")
        if char in "*+?":
            self.fail(f"nothing to repeat before {char}")
        return self.escape() if char == "\\" else self.literal(char)

    def group(self, depth: int) -> Node | None:
        fold = self.fold
        if self.take("?"):
            if self.take("P<") or self.take("<"):
                self.name()
            elif self.flags():
                return None
        node = self.choice(depth + 1)
        if not self.take(")"):
            self.fail("missing )")
        self.fold = fold
        return node

    def name(self) -> None:
        name = ""
        while (char := self.next()) != ">":
            name += char
        if not (name.isascii() and name.isidentifier()):
            self.fail("lookbehinds are not supported, and this is no name of a group")

    def flags(self) -> bool:
        """Read flags. Return True if they end the group and apply to what follows."""
        switch = True
        while (char := self.next()) not in ":)":
            if char == "-" and switch:
                switch = False
            elif char == "i":
                self.fold = switch
            elif char not in "msU":  # which make no difference to a whole name
                self.fail(f"(?{char} is not supported")
        return char == ")"

    def repeated(self, node: Node) -> Node:
        bounds = self.bounds()
        if bounds is None:
            return node
        self.take("?")  # greedy or not, the same names match
        position = self.position
        if self.bounds() is not None:
            self.position = position
            self.fail("a repetition is repeated")
        return Repeat(node, *bounds)

    def bounds(self) -> tuple[int, int | None] | None:
        for sign, low, high in (("*", 0, None), ("+", 1, None), ("?", 0, 1)):
            if self.take(sign):
                return low, high
        end = self.pattern.find("}", self.position)
        if end < 0 or self.pattern[self.position : self.position + 1] != "{":
            return None
        least, comma, most = self.pattern[self.position + 1 : end].partition(",")
        if not (_is_number(least) and (not most or _is_number(most))):
            return None  # a literal brace
        low = int(least)
        high = int(most) if most else MAX_REPEAT if comma else low
        if not low <= high <= MAX_REPEAT:
            self.fail("bad number of repetitions")
        self.position = end + 1
        return low, high if most or not comma else None

    # -- characters ----------------------------------------------------------------------

    def literal(self, char: str) -> Chars:
        return Chars(self.folded(BIT.get(char, 0)))

    def folded(self, mask: int) -> int:
        if not self.fold:
            return mask
        return mask | ((mask & _LOWER) << 26) | ((mask & _UPPER) >> 26)

    def escape(self) -> Node:
        char = self.pattern[self.position : self.position + 1]
        if char in _BOUNDARIES and char:
            self.position += 1
            return Boundary(_BOUNDARIES[char])
        mask = self.class_escape()
        return Chars(mask) if mask is not None else self.literal(self.char_escape())

    def class_escape(self) -> int | None:
        """Return the set of \\d, \\W, \\pL and the like, or None if something else comes next."""
        char = self.pattern[self.position : self.position + 1]
        if not char or char not in "dDwWsSpP":
            return None
        self.position += 1
        mask = self.unicode_class() if char in "pP" else _PERL[char.lower()]
        return mask if char.islower() else ANYTHING & ~mask

    def unicode_class(self) -> int:
        name = self.next()
        if name == "{":
            name = ""
            while (char := self.next()) != "}":
                name += char
        mask = _UNICODE.get(name.removeprefix("^"))
        if mask is None:
            self.fail(f"the class {name} is not supported")
        return ANYTHING & ~mask if name.startswith("^") else mask

    def char_escape(self) -> str:
        char = self.next()
        if char in _CONTROLS:
            return _CONTROLS[char]
        if char == "x":
            return self.hexadecimal()
        if char == "0":
            return self.octal()
        if char.isascii() and char.isdigit():
            self.fail("backreferences are not supported")
        if char.isalnum():
            self.fail(f"\\{char} is not supported")
        return char

    def hexadecimal(self) -> str:
        if self.take("{"):
            end = self.pattern.find("}", self.position)
            digits = self.pattern[self.position : end] if end >= 0 else ""
            self.position = end + 1
        else:
            digits = self.pattern[self.position : self.position + 2]
            self.position += 2
            digits = digits if len(digits) == 2 else ""
        try:
            return chr(int(digits, 16))
        except (ValueError, OverflowError):
            self.fail("bad escape")

    def octal(self) -> str:
        code = 0
        for _ in range(2):
            char = self.pattern[self.position : self.position + 1]
            if not char or char not in "01234567":
                break
            code = code * 8 + int(char)
            self.position += 1
        return chr(code)

    def bracket(self) -> int:
        negated = self.take("^")
        mask = 0
        first = True
        while first or not self.take("]"):
            first = False
            mask |= self.bracket_item()
        mask = self.folded(mask)
        return ANYTHING & ~mask if negated else mask

    def bracket_item(self) -> int:
        if self.take("[:"):
            return self.posix_class()
        if self.take("\\"):
            mask = self.class_escape()
            if mask is not None:
                return mask
            low = self.char_escape()
        else:
            low = self.next()
        rest = self.pattern[self.position : self.position + 2]
        if rest[:1] != "-" or rest in ("-]", "-"):
            return BIT.get(low, 0)
        self.position += 1
        high = self.char_escape() if self.take("\\") else self.next()
        if high < low:
            self.fail(f"the range {low}-{high} is the wrong way round")
        return sum(bit for char, bit in BIT.items() if low <= char <= high)

    def posix_class(self) -> int:
        end = self.pattern.find(":]", self.position)
        name = self.pattern[self.position : end] if end >= 0 else ""
        mask = _POSIX.get(name.removeprefix("^"))
        if mask is None:
            self.fail(f"unknown class [:{name[:16]}:]")
        self.position = end + 2
        return ANYTHING & ~mask if name.startswith("^") else mask


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 6
