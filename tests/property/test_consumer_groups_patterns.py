"""Regular expressions for topic names, against Python's own as far as these agree with RE2."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from ottla.coordinator.groups.consumer.pattern import Pattern, PatternError

ALPHABET = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"

ATOMS = st.sampled_from(
    ("a", "b", "A", "_", r"\.", "-", ".", "[ab]", "[^a.]", "[a-c_]", r"\w", r"\W", r"\d", r"[\w.]")
) | st.sampled_from((r"\b", r"\B", "^", "$", "é", r"\s", "[^-]", r"\-", r"\x61"))


def _larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    count = st.sampled_from(["*", "+", "?", "*?", "+?", "{2}", "{1,3}", "{0,2}", "{1,}"])
    return st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda two: f"{two[0]}|{two[1]}"),
        st.tuples(inner, count).map(lambda two: f"(?:{two[0]}){two[1]}"),
        inner.map(lambda one: f"({one})"),
        inner.map(lambda one: f"(?i:{one})"),
    )


PATTERNS = st.recursive(ATOMS, _larger, max_leaves=8)
NAMES = st.text(alphabet="abcA_.-0", min_size=1, max_size=8)


@given(PATTERNS, st.lists(NAMES, min_size=1, max_size=20))
def test_matches_what_python_matches(pattern: str, names: list[str]) -> None:
    compiled = Pattern(pattern)
    oracle = re.compile(pattern)
    for name in names:
        # Python lets $ match before a newline at the end too; names have none.
        assert compiled.matches(name) == bool(oracle.fullmatch(name)), (pattern, name)


@given(st.text(max_size=40) | st.text(alphabet=r"()[]{}|*+?\^$.-,:<>=!PQEpLdbz019ai", max_size=30))
def test_any_text_is_a_pattern_or_refused(pattern: str) -> None:
    try:
        compiled = Pattern(pattern)
    except PatternError:
        return
    compiled.matches(ALPHABET)
