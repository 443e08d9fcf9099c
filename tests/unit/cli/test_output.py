from __future__ import annotations

import json
import re

import pytest

from ottla.cli.errors import complain, tell
from ottla.cli.output import Column, fitted, print_headline, print_json, print_table, shortened


def test_columns_line_up_when_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    print_table([Column("name"), Column("size", True)], [["events", "7"], ["x", "12345"]])
    assert capsys.readouterr().out.splitlines() == [
        "name     size",
        "events      7",
        "x       12345",
    ]


def test_json_keeps_other_scripts(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"name": "größe", "ids": [1, 2]})
    shown = capsys.readouterr().out
    assert "größe" in shown
    assert json.loads(shown) == {"name": "größe", "ids": [1, 2]}


def test_control_characters_of_names_are_shown_and_not_obeyed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    name, shown = "a\x1b[31m\n\u202eb \u00e9\u65e5", r"a\x1b[31m\n\u202eb " + "\u00e9\u65e5"
    for on_terminal in (False, True):
        monkeypatch.setattr("sys.stdout.isatty", lambda on=on_terminal: on)
        monkeypatch.setattr("sys.stderr.isatty", lambda on=on_terminal: on)
        print_table([Column("group")], [[name]])
        print_headline([name, "Stable"])
        tell(f"1 offset of group {name} set")
        complain(f"group {name}")
        out, err = capsys.readouterr()
        assert out.count(shown) == 2
        assert err.count(r"a\x1b[31m") == 2  # a message may have several lines
        assert "\x1b[31m" not in out + err


MEMBER = "consumer-orders-1-0b0ef2a7-5d1e-4c39-9d3c-bd8a4c2f9e11"
LAG_COLUMNS = [
    Column("topic"),
    Column("partition", True),
    Column("lag", True),
    Column("member", is_id=True),
    Column("client", is_id=True, is_extra=True),
    Column("host", is_extra=True),
]
LAG_ROW = ["orders", "11", "1234567", MEMBER, "consumer-orders-1", "/127.0.0.1"]


@pytest.mark.parametrize("width", [60, 80, 100, 200])
def test_a_table_fits_the_terminal(width: int) -> None:
    columns, rows = fitted(LAG_COLUMNS, [LAG_ROW], width)
    (row,) = rows
    cells = zip(columns, row, strict=True)
    assert 1 + sum(max(len(c.title), len(cell)) + 3 for c, cell in cells) <= width
    assert row[:3] == LAG_ROW[:3]  # only ids are shortened
    assert row[3][:3] + row[3][-3:] == "con" + "e11"
    assert [column.title for column in columns][:4] == ["topic", "partition", "lag", "member"]
    assert (len(columns) == len(LAG_COLUMNS)) == (width > 60)
    assert (row[3] == MEMBER) == (width == 200)


def test_headings_are_wrapped_and_numbers_are_not_cut(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    titles = ["partition", "values of the key", "last clean", "size", "extra"]
    columns = [Column(title, True, is_extra=title == "extra") for title in titles]
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "50")
    print_table(columns, [["11", "1234567", "3 (offset 9)", "163.5 MB", "123456789"]])
    shown = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out).splitlines()
    assert max(map(len, shown)) <= 50
    words = " ".join(shown).split()
    assert {"partition", "values", "of", "the", "key", "last", "clean", "size"} <= set(words)
    assert "extra" not in words
    (row,) = (line for line in shown if "1234567" in line)
    assert all(cell in row for cell in ("11", "3 (offset 9)", "163.5 MB"))


def test_a_headline_breaks_between_its_facts(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = ["the-group-of-the-finance-team", "Stable", "type classic", "lag 967"]
    print_headline(facts)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "40")
    print_headline(facts)
    assert capsys.readouterr().out.splitlines() == [
        "the-group-of-the-finance-team  Stable  type classic  lag 967",  # in a pipe
        "the-group-of-the-finance-team  Stable",
        "type classic  lag 967",
    ]


def test_an_id_keeps_its_start_and_its_end() -> None:
    assert shortened("abcdef", 6) == "abcdef"
    assert shortened("abcdefg", 6) == "abc\u2026fg"


def test_an_empty_table_says_so_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    print_table([Column("name")], [], empty="There are no names.")
    assert capsys.readouterr() == ("", "There are no names.\n")


def test_messages_wrap_between_words(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    message = "the broker at broker-7.example.com:9092 does not answer " * 3
    complain(message.strip())
    assert capsys.readouterr().err.count("\n") == 1  # a pipe gets one line
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "50")
    complain(message.strip())
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) > 1
    assert all(line.startswith("ottla: ") and len(line) <= 50 for line in lines)
    assert " ".join(line.removeprefix("ottla: ") for line in lines) == message.strip()
    tell(message.strip())
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) > 1
    assert all(len(line) <= 50 for line in lines)
    assert " ".join(lines) == message.strip()
