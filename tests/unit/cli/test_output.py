from __future__ import annotations

import json

import pytest

from ottla.cli.output import Column, print_json, print_table


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
