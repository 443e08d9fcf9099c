"""The settings of a session, without starting one."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from ottla_spark.java import NoSpark
from ottla_spark.session import (
    COLLECTOR,
    FILE_LOGGING,
    KEPT_MEMORY,
    LOGGING,
    UNCHECKED,
    check_master,
    prepare_environment,
    session_settings,
)


def test_conf_overrides_everything() -> None:
    settings = session_settings("local[2]", {"spark.ui.enabled": "true"})
    assert settings["spark.ui.enabled"] == "true"
    assert settings["spark.driver.memory"] == "2g"


def test_local_settings_are_not_used_on_a_cluster() -> None:
    settings = session_settings("spark://master:7077", {})
    assert "spark.driver.memory" not in settings
    assert "spark.driver.bindAddress" not in settings
    assert "spark.python.unix.domain.socket.enabled" not in settings
    assert "spark.buffer.size" not in settings
    assert "GC" not in settings["spark.driver.extraJavaOptions"]
    assert UNCHECKED not in settings["spark.driver.extraJavaOptions"]
    assert settings["spark.sql.parquet.outputTimestampType"] == "TIMESTAMP_MICROS"


def test_arrow_is_not_checked_in_an_embedded_session() -> None:
    assert UNCHECKED in session_settings("local[*]", {})["spark.driver.extraJavaOptions"]


def test_the_logging_file_is_part_of_the_package() -> None:
    assert LOGGING.is_file()
    assert LOGGING.as_uri() in session_settings("local", {})["spark.driver.extraJavaOptions"]


def test_a_garbage_collector_of_the_environment_is_the_only_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS"):
        monkeypatch.delenv(name, raising=False)
    assert COLLECTOR in session_settings("local", {})["spark.driver.extraJavaOptions"]
    monkeypatch.setenv("JDK_JAVA_OPTIONS", "-Xss4m -XX:+UseSerialGC")
    assert COLLECTOR not in session_settings("local", {})["spark.driver.extraJavaOptions"]


def test_memory_settings_of_an_embedded_session_and_of_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in (*KEPT_MEMORY, "JAVA_HOME", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        monkeypatch.setenv(name, "")  # so that it is put back
        monkeypatch.delenv(name)
    prepare_environment.__wrapped__("spark://master:7077")
    assert not KEPT_MEMORY.keys() & os.environ.keys()
    monkeypatch.setenv("MALLOC_TOP_PAD_", "4096")
    prepare_environment.__wrapped__("local[2]")
    kept = {name: os.environ[name] for name in KEPT_MEMORY}
    assert kept == {**KEPT_MEMORY, "MALLOC_TOP_PAD_": "4096"}


def test_java_options_of_a_person_are_added_and_do_not_change_the_log() -> None:
    own = "-Xss4m -XX:+UseG1GC"
    options = session_settings("local", {"spark.driver.extraJavaOptions": own})
    words = options["spark.driver.extraJavaOptions"]
    assert words.endswith(own)
    assert LOGGING.as_uri() in words
    assert COLLECTOR not in words


def test_a_log_file_replaces_the_terminal(tmp_path: Path) -> None:
    log = tmp_path / "spark.log"
    words = session_settings("local", {}, log)["spark.driver.extraJavaOptions"]
    assert FILE_LOGGING.as_uri() in words
    assert f'"-Dottla.spark.log={log}"' in words
    assert FILE_LOGGING.is_file()


def test_a_standalone_master_that_does_not_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as master:
        port = master.getsockname()[1]
        check_master(f"spark://127.0.0.1:1,127.0.0.1:{port}")
    with pytest.raises(NoSpark, match=rf"no Spark master answers at spark://127.0.0.1:{port}: "):
        check_master(f"spark://127.0.0.1:{port}")
    check_master("local[*]")
    check_master("k8s://https://nowhere:1")
