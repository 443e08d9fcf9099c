"""The definition of a setting: its name, type, default, allowed values and documentation.

Parsing, DescribeConfigs responses and docs/configuration.md use these definitions. An invalid
value raises `ConfigError`. Its message names the setting and the allowed values, in the words of
Kafka's brokers, because tools match them. component.py says how a setting is declared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from typing import Literal, NamedTuple, TypeAlias

Value: TypeAlias = bool | int | float | str | tuple[str, ...] | None
Values: TypeAlias = Mapping[str, Value]
"""Parsed values by the name of their setting."""
Type = Literal["boolean", "string", "int", "short", "long", "double", "list", "class", "password"]
Importance = Literal["high", "medium", "low"]
UpdateMode = Literal["read-only", "per-broker", "cluster-wide"]

READ_ONLY: UpdateMode = "read-only"
PER_BROKER: UpdateMode = "per-broker"
CLUSTER_WIDE: UpdateMode = "cluster-wide"

UNKNOWN = "Unknown setting"
"""How the message for an unknown name begins. Kafka has other words for topics and groups."""

MAX_INT = 2**31 - 1
MAX_LONG = 2**63 - 1
MAX_DOUBLE = 1.7976931348623157e308
_MAX_ERRORS = 20
_MAX_SHOWN = 100
_NEAR = 0.6
_PAIRS: dict[str, frozenset[str]] = {}
_BITS = {"short": 16, "int": 32, "long": 64}


class ConfigError(ValueError):
    """One or more settings are invalid. `errors` has a message for each."""

    def __init__(self, *errors: str) -> None:
        super().__init__("\n".join(errors))
        self.errors = errors


class Validator:
    """The values that a setting accepts. `str` describes them for the documentation."""

    __slots__ = ()

    def accepts(self, value: Value) -> bool:
        raise NotImplementedError

    def reason(self, setting: str, value: Value) -> str:
        """Return why a value is not accepted, in Kafka's words."""
        raise NotImplementedError

    def rejected(self, value: Value, text: str) -> str:
        """Return what the message shows of a value that is not accepted."""
        return text


class AtLeast(Validator):
    """Numbers of at least `minimum`."""

    __slots__ = ("minimum",)

    def __init__(self, minimum: int) -> None:
        self.minimum = minimum

    def accepts(self, value: Value) -> bool:
        return isinstance(value, int | float) and value >= self.minimum

    def reason(self, setting: str, value: Value) -> str:
        return f"Value must be at least {self.minimum}"

    def __str__(self) -> str:
        return f"at least {self.minimum}"


class Between(Validator):
    """Numbers from `minimum` to `maximum` (inclusive), or the `exception`."""

    __slots__ = ("exception", "maximum", "minimum")

    def __init__(self, minimum: int, maximum: int, exception: int | None = None) -> None:
        self.minimum = minimum
        self.maximum = maximum
        self.exception = exception

    def accepts(self, value: Value) -> bool:
        if not isinstance(value, int | float):
            return False
        return self.minimum <= value <= self.maximum or value == self.exception

    def reason(self, setting: str, value: Value) -> str:
        if self.exception is not None:
            return (
                f"Value must be between {self.minimum} and {self.maximum}"
                f" or equal to {self.exception}"
            )
        if isinstance(value, int | float) and value > self.maximum:
            return f"Value must be no more than {self.maximum}"
        return f"Value must be at least {self.minimum}"

    def __str__(self) -> str:
        words = f"between {self.minimum} and {self.maximum}"
        return words if self.exception is None else f"{words}, or {self.exception}"


class OneOf(Validator):
    """One of a few words, or a list of them."""

    __slots__ = ("words",)

    def __init__(self, words: tuple[str, ...]) -> None:
        self.words = words

    def accepts(self, value: Value) -> bool:
        return all(word in self.words for word in (value if isinstance(value, tuple) else (value,)))

    def reason(self, setting: str, value: Value) -> str:
        return f"String must be one of: {', '.join(self.words)}"

    def rejected(self, value: Value, text: str) -> str:
        if isinstance(value, tuple):
            return next(word for word in value if word not in self.words)
        return text

    def __str__(self) -> str:
        return "one of " + ", ".join(word or "nothing" for word in self.words)


class ReplicaList(Validator):
    """A list of replicas as partition:broker, or * for all."""

    __slots__ = ()

    def accepts(self, value: Value) -> bool:
        return value == ("*",) or (isinstance(value, tuple) and all(map(_is_replica, value)))

    def reason(self, setting: str, value: Value) -> str:
        return (
            f"{setting} must be the literal '*' or a list of replicas in the following format:"
            " [partitionId]:[brokerId],[partitionId]:[brokerId],..."
        )

    def rejected(self, value: Value, text: str) -> str:
        return f"[{', '.join(value)}]" if isinstance(value, tuple) else text

    def __str__(self) -> str:
        return "a list of partition:broker, or *"


def _is_replica(text: str) -> bool:
    partition, _, broker = text.partition(":")
    return text.isascii() and partition.isdigit() and broker.isdigit()


class Synonym:
    """A broker setting that is the default of a topic setting, and its unit in milliseconds."""

    __slots__ = ("name", "unit_ms")

    def __init__(self, name: str, unit_ms: int = 1) -> None:
        self.name = name
        self.unit_ms = unit_ms


class Setting(NamedTuple):
    """A setting as Kafka defines it.

    `effective` is False for a setting that is accepted, because many files contain it, but has
    no effect in this broker. `internal` settings are for tests, or Kafka does not describe them
    by default. They are described only if they are set. `resolve` computes the field of the
    config from the values of the component's settings; without it, the field is the value.
    `synonyms` are the broker settings that give a topic setting its default.
    """

    name: str
    type: Type
    default: Value
    validator: Validator | None
    doc: str
    importance: Importance = "medium"
    update: UpdateMode = READ_ONLY
    effective: bool = True
    internal: bool = False
    resolve: Callable[[Values], object] | None = None
    synonyms: tuple[Synonym, ...] = ()

    @property
    def attribute(self) -> str:
        """The name of the field in a config object."""
        return self.name.replace(".", "_")

    @property
    def sensitive(self) -> bool:
        return self.type == "password"

    def parse(self, text: str) -> Value:
        """Return the value of a text. Raise ConfigError if it is invalid."""
        value = _parse(self, text)
        if self.validator is not None and not self.validator.accepts(value):
            reason = self.validator.reason(self.name, value)
            raise self.refusal(self.validator.rejected(value, text), reason)
        return value

    def refusal(self, text: str, reason: str) -> ConfigError:
        """Return the error for a text that is not allowed."""
        shown = "[hidden]" if self.sensitive else _shortened(text)
        return ConfigError(f"Invalid value {shown} for configuration {self.name}: {reason}")


def _parse(setting: Setting, text: str) -> Value:
    kind = setting.type
    if kind in _BITS:
        return _parse_whole(setting, text)
    if kind == "boolean":
        word = text.strip().lower()
        if word not in ("true", "false"):
            raise setting.refusal(text, "Expected value to be either true or false")
        return word == "true"
    if kind == "double":
        try:
            return float(text)
        except ValueError:
            raise setting.refusal(text, "Not a number of type DOUBLE") from None
    if kind == "list":
        return split_list(text)
    return text if kind == "password" else text.strip()


def _parse_whole(setting: Setting, text: str) -> int:
    digits = text.strip()
    unsigned = digits[1:] if digits[:1] in ("+", "-") else digits
    bits = _BITS[setting.type]
    # int() alone would also accept 1_000 and non-ASCII digits, which Kafka does not.
    if unsigned.isascii() and unsigned.isdigit() and len(unsigned) <= 20:
        value = int(digits)
        if -(1 << (bits - 1)) <= value < 1 << (bits - 1):
            return value
    raise setting.refusal(text, f"Not a number of type {setting.type.upper()}")


def split_list(text: str) -> tuple[str, ...]:
    """Return the items of a comma-separated list, without surrounding spaces."""
    return tuple(part.strip() for part in text.split(",")) if text.strip() else ()


def format_value(value: Value) -> str | None:
    """Return the text of a value. None (no value) stays None."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(value)
    if isinstance(value, float):
        return str(value).replace("e+", "E").replace("e", "E")  # as Java writes it
    return str(value)


def unknown_setting(name: str, known: Iterable[str], start: str = UNKNOWN) -> str:
    """Return the message for an unknown name, with similar known names if there are any."""
    near = _nearest(name, known) if len(name) <= _MAX_SHOWN else []
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    return f"{start} {_shortened(name)}{hint}"


def _nearest(name: str, known: Iterable[str]) -> list[str]:
    """Return the known names that share most pairs of letters with this one.

    difflib would take milliseconds, and a request may have thousands of unknown names.
    """
    own = _pairs(name)
    scores = [
        (2 * len(own & pairs) / (len(own) + len(pairs) or 1), other)
        for other, pairs in ((other, _known_pairs(other)) for other in known)
    ]
    return [other for score, other in sorted(scores, reverse=True)[:3] if score >= _NEAR]


def _pairs(name: str) -> frozenset[str]:
    return frozenset(map("".join, pairwise(name)))


def _known_pairs(name: str) -> frozenset[str]:
    found = _PAIRS.get(name)
    if found is None:
        found = _PAIRS[name] = _pairs(name)
    return found


def _shortened(text: str) -> str:
    return text if len(text) <= _MAX_SHOWN else text[:_MAX_SHOWN] + "..."


def parse_all(
    settings: Mapping[str, Setting], texts: Mapping[str, str], unknown: str = UNKNOWN
) -> dict[str, Value]:
    """Return the values of all texts. Raise one ConfigError that names all mistakes."""
    values: dict[str, Value] = {}
    errors: list[str] = []
    for name, text in texts.items():
        setting = settings.get(name)
        try:
            if setting is None:
                raise ConfigError(unknown_setting(name, settings, unknown))
            values[name] = setting.parse(text)
        except ConfigError as error:
            errors.extend(error.errors)
            if len(errors) == _MAX_ERRORS:
                break
    if errors:
        raise ConfigError(*errors)
    return values
