"""What a running load tells."""

from __future__ import annotations

import pytest

from ottla.cli.load.progress import LoadView

LINE = "new field address.street: not loaded, because its name differs from another one by case"


def test_lines_are_wrapped_between_words_on_a_terminal_only(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "50")
    with LoadView() as view:
        view.say(LINE)
    assert capsys.readouterr().err == f"{LINE}\n"
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    with LoadView() as view:
        view.say(LINE)
    lines = capsys.readouterr().err.splitlines()
    assert all(len(line) <= 50 for line in lines)
    assert " ".join(line.strip() for line in lines) == LINE
