"""Regular expressions of subscriptions: RE2's syntax, and no way to make one expensive."""

from __future__ import annotations

import pytest

from ottla.coordinator.groups.consumer.pattern import MAX_REMEMBERED, Pattern
from ottla.coordinator.groups.consumer.pattern_syntax import MAX_LENGTH, PatternError

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
        (r"\x61\x{62}", "ab", "aa"),
        (r"\010?b", "b", "0b"),
        (r"a{2}", "aa", "aaa"),
        ("a{,2}|b", "b", "aa"),
        (r"\Aab\z", "ab", "abc"),
        (r"a\b-b", "a-b", "a_b"),
        ("", "", "a"),
        ("a||b", "", "ab"),
        ("(?s).*", "abc", "é"),
    ],
)
def test_syntax(pattern: str, yes: str, no: str) -> None:
    assert Pattern(pattern).matches(yes)
    assert not Pattern(pattern).matches(no)


@pytest.mark.parametrize(
    "pattern",
    [
        "(", ")", "(a", "a)", "[a", "[b-a]", "*a", "a**", "a*+", "a{2}{3}", "a{5,2}", "a{1001}",
        r"(a)\1", "(?=a)", "(?!a)", "(?<=a)", "(?<!a)", "(?>a)", "(?#a)", r"\Z", r"\p{Greek}",
        "\\", r"\x", r"\xg0", r"\x{110000}", "[[:what:]]", "(?P<a", "(?i", "(?P<1>a)", r"\C",
        "(" * 200 + "a" + ")" * 200, "a" * (MAX_LENGTH + 1),
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
    assert compiled.cost < 300_000


def test_what_is_remembered_is_bounded() -> None:
    compiled = Pattern(".*a.{60}")
    names = [bin(number)[2:].translate({48: "b", 49: "a"}) for number in range(10**6, 10**6 + 400)]
    for name in names:
        text = name * 5
        assert compiled.matches(text) == (text[-61] == "a")
    assert sum(len(states) for states, _ in compiled._states) <= 2 * MAX_REMEMBERED
