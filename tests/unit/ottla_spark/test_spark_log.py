"""The log file of a command on Spark, and the message in its place."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError

from ottla_spark.java import NoJava
from ottla_spark.spark_log import UnexpectedError, message_of, spark_log


@pytest.fixture(autouse=True)
def _files_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def test_the_file_is_removed_after_success(tmp_path: Path) -> None:
    with spark_log(verbose=False) as path:
        assert path is not None
        path.write_text("much")
    assert list(tmp_path.iterdir()) == []


def test_an_expected_error_without_a_cause_needs_no_file(tmp_path: Path) -> None:
    with (
        pytest.raises(ValueError, match=r"^wrong$") as raised,
        spark_log(ValueError, verbose=False),
    ):
        raise ValueError("wrong")
    assert message_of(raised.value) == "wrong"
    assert list(tmp_path.iterdir()) == []


def test_the_cause_of_an_expected_error_is_in_the_file(tmp_path: Path) -> None:
    with (
        pytest.raises(ValueError, match=r"^wrong\ndetails are in ") as raised,
        spark_log(ValueError, verbose=False),
    ):
        raise ValueError("wrong") from KeyError("the long story")
    (file,) = tmp_path.iterdir()
    assert message_of(raised.value) == f"wrong\ndetails are in {file}"
    assert "the long story" in file.read_text()


def test_an_unexpected_error_shows_its_first_line(tmp_path: Path) -> None:
    with pytest.raises(UnexpectedError) as raised, spark_log(ValueError, verbose=False):
        raise OSError("no space\n  at many.frames")
    (file,) = tmp_path.iterdir()
    assert message_of(raised.value) == f"OSError: no space\ndetails are in {file}"
    assert "at many.frames" in file.read_text()


def test_verbose_prints_everything(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(NoJava), spark_log(verbose=True):
        raise NoJava("none")
    assert "Traceback" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_an_unexpected_exception_of_java_shows_its_cause(tmp_path: Path) -> None:
    class JavaError(Py4JJavaError):  # type: ignore[misc]
        def __init__(self) -> None:
            """Leave out Java."""

        def __str__(self) -> str:
            return "An error occurred while calling o1.f.\n: java.io.IOException: disk full\n\tat a"

    with (
        pytest.raises(UnexpectedError, match=r"^disk full\ndetails are in"),
        spark_log(verbose=False),
    ):
        raise JavaError
