"""The relations that a query reads."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla_spark.pipelines.spec.sql_relations import first_word, relations_of


@pytest.mark.parametrize(
    ("sql", "names"),
    [
        ("SELECT * FROM orders", ["orders"]),
        ("select * from orders o, clicks as c where o.x = c.x", ["orders", "clicks"]),
        ("SELECT * FROM a JOIN b ON a.id = b.id LEFT OUTER JOIN c USING (id), d", list("abcd")),
        ("SELECT * FROM (SELECT * FROM a) x, b", ["a", "b"]),
        ("SELECT * FROM ((a JOIN b ON a.x = b.x) JOIN c ON true)", ["a", "b", "c"]),
        (
            "SELECT a FROM x WHERE id IN (SELECT id FROM y) AND EXISTS (SELECT 1 FROM z)",
            list("xyz"),
        ),
        ("SELECT extract(YEAR FROM ts), trim(BOTH 'x' FROM b) FROM orders", ["orders"]),
        ("SELECT * FROM a WHERE b IS DISTINCT FROM c AND d IS NOT DISTINCT FROM e", ["a"]),
        ("WITH q AS (SELECT * FROM a), r AS (SELECT * FROM q) SELECT * FROM r JOIN b", ["a", "b"]),
        ("SELECT * FROM (WITH q AS (SELECT * FROM a) SELECT * FROM q)", ["a"]),
        (
            "SELECT 'FROM x', \"FROM y\", `FROM z` FROM `my table` -- FROM c\n/* FROM d */",
            ["my table"],
        ),
        ("SELECT * FROM cat.db.t JOIN a", ["a"]),
        ("SELECT * FROM range(10), a", ["a"]),
        ("SELECT * FROM a LATERAL VIEW explode(xs) t AS k, v", ["a"]),
        ("SELECT * FROM a, LATERAL explode(a.xs) AS t(x), b", ["a", "b"]),
        ("SELECT x, y FROM a UNION ALL SELECT x, y FROM b", ["a", "b"]),
        ("SELECT id, n FROM a GROUP BY id, n ORDER BY id, n", ["a"]),
        ("FROM a |> WHERE x > 1", ["a"]),
        ("TABLE a", ["a"]),
        ("VALUES (1), (2)", []),
        ("SELECT (SELECT max(x) FROM b) m FROM a, c", ["b", "a", "c"]),
        ("SELECT * FROM a AS t(x, y), b", ["a", "b"]),
        ("SELECT * FROM a a1 JOIN a a2 ON a1.x = a2.x", ["a"]),
        ("SELECT * FROM VALUES (1) AS v(x), a", ["a"]),
    ],
)
def test_relations(sql: str, names: list[str]) -> None:
    assert relations_of(sql) == names


@pytest.mark.parametrize(
    ("sql", "word"),
    [
        ("-- c\n  Select 1", "select"),
        ("/* x */ (SELECT 1)", "select"),
        ("DROP TABLE x", "drop"),
        ("", ""),
        ("'text'", ""),
    ],
)
def test_first_word(sql: str, word: str) -> None:
    assert first_word(sql) == word


@settings(deadline=None)
@given(st.lists(st.sampled_from(["FROM", "JOIN", "SELECT", "(", ")", ",", "a", "`b`", "'", '"'])))
def test_any_tokens_give_names_that_are_there(tokens: list[str]) -> None:
    assert set(relations_of(" ".join(tokens))) <= {"a", "b", "FROM", "JOIN", "SELECT"}
