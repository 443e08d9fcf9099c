from __future__ import annotations

import pytest

from ottla.config.definition import (
    AtLeast,
    Between,
    ConfigError,
    OneOf,
    ReplicaList,
    Setting,
    Type,
    Validator,
    Value,
    format_value,
    parse_all,
    split_list,
    unknown_setting,
)


def setting(kind: Type, validator: Validator | None = None) -> Setting:
    return Setting("some.name", kind, None, validator, "")


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("boolean", " TRUE ", True),
        ("boolean", "false", False),
        ("int", "2147483647", 2147483647),
        ("int", " -2147483648 ", -2147483648),
        ("short", "+7", 7),
        ("long", "9223372036854775807", 2**63 - 1),
        ("double", "0.5", 0.5),
        ("double", "1e3", 1000.0),
        ("string", " some text ", "some text"),
        ("list", "a, b ,c", ("a", "b", "c")),
        ("list", " ", ()),
        ("password", " secret ", " secret "),
        ("class", "a.B", "a.B"),
    ],
)
def test_texts_become_values(kind: Type, text: str, value: Value) -> None:
    assert setting(kind).parse(text) == value


@pytest.mark.parametrize(
    ("kind", "text", "allowed"),
    [
        ("boolean", "yes", "Expected value to be either true or false"),
        ("int", "2147483648", "Not a number of type INT"),
        ("int", "1_000", "Not a number of type INT"),
        ("int", "٣", "Not a number of type INT"),
        ("int", "", "Not a number of type INT"),
        ("int", "1.0", "Not a number of type INT"),
        ("short", "40000", "Not a number of type SHORT"),
        ("long", "9" * 19, "Not a number of type LONG"),
        ("long", "9" * 100000, "Not a number of type LONG"),
        ("double", "half", "Not a number of type DOUBLE"),
    ],
)
def test_other_texts_are_refused_by_name(kind: Type, text: str, allowed: str) -> None:
    with pytest.raises(ConfigError, match=f"for configuration some.name: {allowed}"):
        setting(kind).parse(text)


@pytest.mark.parametrize(
    ("validator", "kind", "good", "bad", "allowed"),
    [
        (AtLeast(1), "int", "1", "0", "Value must be at least 1"),
        (Between(1, 9, -1), "int", "-1", "0", "Value must be between 1 and 9 or equal to -1"),
        (Between(0, 1), "double", "1", "1.01", "Value must be no more than 1"),
        (OneOf(("a", "b")), "string", "b", "c", "String must be one of: a, b"),
        (OneOf(("a", "b")), "list", "b,a", "a,c", "String must be one of: a, b"),
        (AtLeast(0), "double", "0", "nan", "Value must be at least 0"),
        (
            ReplicaList(),
            "list",
            "0:1,12:3",
            "0:1,x:3",
            "some.name must be the literal '\\*' or a list of",
        ),
        (ReplicaList(), "list", "*", "*,0:1", "some.name must be the literal '\\*' or a list of"),
    ],
)
def test_values_out_of_range_are_refused(
    validator: Validator, kind: Type, good: str, bad: str, allowed: str
) -> None:
    limited = setting(kind, validator)
    assert limited.parse(good) is not None
    with pytest.raises(ConfigError, match=f": {allowed}"):
        limited.parse(bad)


def test_a_password_is_not_shown() -> None:
    secret = Setting("p", "password", None, OneOf(("",)), "")
    with pytest.raises(ConfigError) as caught:
        secret.parse("hunter2")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "value", [True, False, 7, -1, 0.5, "text", ("a", "b"), (), 1.7976931348623157e308]
)
def test_a_formatted_value_parses_to_itself(value: Value) -> None:
    kinds: dict[type, Type] = {bool: "boolean", int: "int", float: "double", str: "string"}
    kind = kinds.get(type(value), "list")
    text = format_value(value)
    assert text is not None
    assert setting(kind).parse(text) == value


def test_no_value_has_no_text() -> None:
    assert format_value(None) is None


def test_an_unknown_name_gets_a_suggestion() -> None:
    known = ["num.partitions", "num.io.threads"]
    assert unknown_setting("num.partition", known) == (
        "Unknown setting num.partition; did you mean num.partitions?"
    )
    assert unknown_setting("xyz", known) == "Unknown setting xyz"
    assert unknown_setting("", known) == "Unknown setting "
    assert unknown_setting("listners", ["listeners", *known]).endswith("mean listeners?")


def test_messages_stay_short_whatever_was_sent() -> None:
    assert len(unknown_setting("n" * 10_000_000, ["num.partitions"])) < 200
    with pytest.raises(ConfigError) as caught:
        setting("int").parse("9" * 10_000_000)
    assert len(str(caught.value)) < 250
    with pytest.raises(ConfigError) as caught:
        parse_all({}, {f"unknown.{number}": "" for number in range(1000)})
    assert len(caught.value.errors) == 20


def test_everything_wrong_is_said_at_once() -> None:
    settings = {"a": Setting("a", "int", 0, None, ""), "b": Setting("b", "int", 0, None, "")}
    with pytest.raises(ConfigError) as caught:
        parse_all(settings, {"a": "x", "b": "1", "c": "1"})
    assert caught.value.errors == (
        "Invalid value x for configuration a: Not a number of type INT",
        "Unknown setting c",
    )


def test_lists_are_split_at_commas() -> None:
    assert split_list("a,,b") == ("a", "", "b")
    assert split_list("") == ()
