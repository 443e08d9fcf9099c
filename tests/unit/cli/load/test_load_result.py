"""The table that `ottla load` prints at its end."""

from __future__ import annotations

import pytest

from ottla.cli.load.result import print_result

RESULT: dict[str, str | int | float | dict[str, str]] = {
    "topic": "orders",
    "table": "delta:/lake/orders",
    "group": "g",
    "records": 5,
    "rows": 5,
    "dead_letters": 0,
    "dead_letters_to": "",
    "lag": 0,
    "batches": 1,
    "files": 1,
    "bytes": 2048,
    "compacted_files": 0,
    "leftovers_removed": 0,
    "new_fields": {},
    "added_fields": {},
    "seconds": 2.0,
    "records_per_second": 2.5,
}


def test_the_rows_are_those_of_this_run(capsys: pytest.CaptureFixture[str]) -> None:
    print_result(RESULT, False)
    said = capsys.readouterr().out
    assert "rows added" in said
    assert "in the table" not in said
    assert said.split()[said.split().index("records/s") + 1] == "2.5"


def test_a_run_without_batches_has_no_rate(capsys: pytest.CaptureFixture[str]) -> None:
    print_result(RESULT | {"batches": 0, "records_per_second": 0.0}, False)
    assert "records/s" not in capsys.readouterr().out
