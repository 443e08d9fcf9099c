"""YAML as a tree with lines, and hostile files."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla_spark.pipelines.spec.problems import Problem, Problems
from ottla_spark.pipelines.spec.yaml_tree import (
    MAX_BYTES,
    MAX_DEPTH,
    Mapping,
    Scalar,
    Sequence,
    parse,
    plain,
)


def read(text: str) -> tuple[Mapping | None, list[Problem]]:
    problems = Problems()
    return parse(text, problems), list(problems)


def test_keys_and_values_know_their_lines() -> None:
    top, problems = read("name: a\nsteps:\n  big:\n    sql: SELECT 1\n  list: [x,\n    y]\n")
    assert problems == []
    assert top is not None
    assert top.key_lines == {"name": 1, "steps": 2}
    steps = top.entries["steps"]
    assert isinstance(steps, Mapping)
    assert steps.key_lines == {"big": 3, "list": 5}
    listed = steps.entries["list"]
    assert isinstance(listed, Sequence)
    assert [item.line for item in listed.items] == [5, 6]


def test_a_block_knows_the_line_of_each_character() -> None:
    top, _ = read("a: 1\nsql: |\n  SELECT\n    amout\n  FROM x\n")
    assert top is not None
    sql = top.entries["sql"]
    assert isinstance(sql, Scalar)
    assert sql.line == 3
    assert sql.line_of(sql.text.index("amout")) == 4
    assert sql.line_of(sql.text.index("FROM")) == 5


def test_a_quoted_text_is_all_in_its_first_line() -> None:
    top, _ = read('a: 1\nsql: "SELECT\n  x\n  FROM y"\n')
    assert top is not None
    sql = top.entries["sql"]
    assert isinstance(sql, Scalar)
    assert sql.line_of(sql.text.index("FROM")) == 2


def test_scalars_keep_their_text() -> None:
    top, _ = read("on: yes\n12: 0x10\n")
    assert top is not None
    assert [(key, node.text) for key, node in top.entries.items() if isinstance(node, Scalar)] == [
        ("on", "yes"),
        ("12", "0x10"),
    ]


def test_plain_values_have_yaml_types() -> None:
    top, _ = read("a: {b: 12, c: 1.5, d: yes, e: null, f: '12', g: [x, 0x10]}\n")
    assert top is not None
    assert plain(top.entries["a"]) == {
        "b": 12,
        "c": 1.5,
        "d": True,
        "e": None,
        "f": "12",
        "g": ["x", 16],
    }


def test_a_number_too_long_for_python_stays_a_text() -> None:
    digits = "1" * 5000
    top, _ = read(f"a: {digits}\n")
    assert top is not None
    assert plain(top.entries["a"]) == digits


def test_two_equal_keys_are_refused_with_both_lines() -> None:
    _, problems = read("steps:\n  a: 1\n  b: 2\n  a: 3\n")
    assert problems == [Problem(4, "steps.a", "'a' occurs twice: first in line 2")]


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("a: &x [1]\nb: *x\n", 2, "aliases"),
        ("a: &x [*x]\n", 1, "aliases"),
        ("a: 1\n---\nb: 2\n", 2, "only one pipeline per file"),
        ("a: 1\nb: [1, 2\nc: 3\n", 3, "not YAML"),
        ("a: 1\n\tb: 2\n", 2, "not YAML"),
        ("- a\n- b\n", 1, "needs keys such as"),
        ("just text\n", 1, "needs keys such as"),
        ("", 1, "needs keys such as"),
        ("a: !!python/object/apply:os.system [ls]\n", 1, ""),
        ("a: !secret x\n", 1, "tag"),
        ("? [a, b]\n: 1\n", 1, "a key must be a word"),
        ("a: '\\x00\x00'\n", 0, "not YAML"),
    ],
)
def test_invalid_files_are_reported_with_a_line(text: str, line: int, words: str) -> None:
    top, problems = read(text)
    if words:
        assert top is None
        assert [problem.line for problem in problems] == [line]
        assert words in problems[0].message
    else:
        assert top is not None  # the tag of a list is not looked at, so nothing is run


def test_depth_is_limited() -> None:
    top, problems = read("a: " + "[" * 5_000)
    assert top is None
    assert f"more than {MAX_DEPTH} levels" in problems[0].message


def test_size_is_limited() -> None:
    top, problems = read("# " + "x" * MAX_BYTES)
    assert top is None
    assert "too large" in problems[0].message


@settings(deadline=None)
@given(st.text(alphabet=st.sampled_from("a:-[]{}&*!|>'\"#%@`,? \n\t\x00\x85"), max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    top, problems = read(text)
    assert top is not None or problems
    lines = text.count("\n") + text.count("\x85") + 2  # both end lines in YAML
    assert all(0 <= problem.line <= lines for problem in problems)
