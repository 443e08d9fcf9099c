"""Regular expressions of subscriptions: RE2's syntax, and no way to make one expensive."""

from __future__ import annotations

import sys

import pytest

from ottla.coordinator.groups.consumer import pattern as pattern_module
from ottla.coordinator.groups.consumer.pattern import MAX_LENGTH, Pattern, PatternError

LONG = "a" * 248 + "b"


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("orders", "orders", "orders2"),
        ("orders.*", "orders-eu", "my-orders"),
        ("^orders-(eu|us)$", "orders-us", "orders-as"),
        (r"t\.x", "t.x", "t-x"),
        (r"\Qa.b\E.*", "a.bc", "axb"),
        (r"\Qa.b", "a.b", "aXb"),
        ("(?i)orders", "ORDERS", "0RDERS"),
        ("a(?i:b)c", "aBc", "aBC"),
        ("a(?i)b|c", "C", "A"),
        ("(a(?i)b)c", "aBc", "aBC"),
        ("(?P<year>[0-9]{4})", "2024", "20245"),
        ("(?<year>[0-9]{2,})", "20245", "2"),
        ("[[:alpha:]]+", "abc", "ab1"),
        ("[[:^alpha:]-]+", "12-", "a"),
        ("[]a]", "a", "b"),
        ("[^]a]", "b", "a"),
        ("[a-]+", "a-", "b"),
        (r"[\d_]+", "1_2", "a"),
        (r"\pL+", "ab", "a1"),
        (r"\p{Lu}\P{Lu}", "Aa", "AA"),
        (r"\p{Greek}|a", "a", "b"),
        (r"\x61\x{62}", "ab", "aa"),
        (r"\010?b", "b", "0b"),
        (r"a{2}", "aa", "aaa"),
        ("a{,2}|b", "b", "aa"),
        (r"\Aab\z", "ab", "abc"),
        (r"a\b-b", "a-b", "a_b"),
        ("", "", "a"),
        ("a||b", "", "ab"),
    ],
)
def test_syntax(pattern: str, yes: str, no: str) -> None:
    assert Pattern(pattern).matches(yes)
    assert not Pattern(pattern).matches(no)


@pytest.mark.parametrize(
    "pattern",
    [
        "(", ")", "(a", "a)", "[a", "[b-a]", "*a", "a**", "a*+", "a{2}{3}", "a{5,2}", "a{1001}",
        r"(a)\1", "(?=a)", "(?!a)", "(?<=a)", "(?<!a)", "(?>a)", "(?#a)", r"\Z", r"\p{Grek}",
        "\\", r"\x", r"\xg0", r"\x{110000}", "[[:what:]]", "(?P<a", "(?i",
        "a" * (MAX_LENGTH + 1), "((.?){1000}){3}(?:q1)?", "((.?){1000})",
        "((a{100}){100}){100}", "((((){1000}){1000}){1000}){1000}", "(((a{0}){999}){999}){999}",
    ],
)  # fmt: skip
def test_refused(pattern: str) -> None:
    with pytest.raises(PatternError):
        Pattern(pattern)


@pytest.mark.parametrize(
    "pattern",
    ["(a+)+", "(a|a)*", "(a|aa)+", "a*a*a*a*a*a*a*a*", "(.*)*(.*)*", "(?:a?){200}a{200}"],
)
def test_what_a_backtracking_matcher_would_take_forever_for(pattern: str) -> None:
    compiled = Pattern(pattern)
    assert not compiled.matches(LONG[:-1] + ".") or "." in pattern
    assert compiled.cost(LONG) < 300_000


def test_no_pattern_costs_much_for_one_name() -> None:
    largest = Pattern("(.?){400}")  # with 1000 it is too large
    assert largest.matches(LONG)
    assert largest.cost("x" * 249) < 1_000_000


def test_a_large_pattern_matches_right_with_little_memory() -> None:
    compiled = Pattern(".*a.{60}")
    names = [bin(number)[2:].translate({48: "b", 49: "a"}) for number in range(10**6, 10**6 + 400)]
    for name in names:
        text = name * 5
        assert compiled.matches(text) == (text[-61] == "a")


def test_nothing_is_written_to_stderr(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(PatternError, match="missing \\]"):
        Pattern("[")
    with pytest.raises(PatternError, match="too large"):
        Pattern("(.?){1000}")
    assert capfd.readouterr().err == ""


def test_without_re2_a_clear_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "re2", None)
    pattern_module._engine.cache_clear()
    try:
        with pytest.raises(PatternError, match="google-re2 is not installed"):
            Pattern("a")
    finally:
        pattern_module._engine.cache_clear()
