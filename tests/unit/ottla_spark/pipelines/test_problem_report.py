"""The problems of a pipeline file, as `ottla pipeline` prints them."""

from __future__ import annotations

import pytest

from ottla.cli.errors import tell
from ottla_spark.pipelines.command import ProblemReport
from ottla_spark.pipelines.spec.problems import Problems


def test_problems_that_need_no_spark_are_printed_before_it_starts(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    problems, report = Problems(), ProblemReport("p.yaml", tell)
    report.print_early(problems)
    assert capsys.readouterr().err == ""
    problems.add(7, "sinks.x.table", "unknown Iceberg catalog nowhere")
    report.print_early(problems)
    early = "p.yaml:7: sinks.x.table: unknown Iceberg catalog nowhere\n"
    assert capsys.readouterr().err == early + "ottla: Spark checks the rest ...\n"
    problems.add(3, "steps.s.sql", "there is no column 'x'")
    report.print_all(problems)
    late = "p.yaml:3: steps.s.sql: there is no column 'x'\n"
    assert capsys.readouterr().err == late + "ottla: 2 problems\n"
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "50")
    ProblemReport("p.yaml", tell).print_all(problems)
    wrapped = "p.yaml:7: sinks.x.table: unknown Iceberg catalog\nnowhere\n"
    assert capsys.readouterr().err == late + wrapped + "ottla: 2 problems\n"
