"""Downloads Apache Kafka's published jars through Maven into the cache.

A directory `kafka-<version>` in the cache is always complete: jars are copied into a temporary
directory, which is renamed at the end.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from harness.cache import cache_directory
from harness.problem import BenchError

PINNED_VERSION = "4.3.0"
"""Used when the newest version cannot be found out or its artifacts are incomplete."""

NEWEST = "newest"
OLDEST_SUPPORTED = "4.0.0"
MAVEN_TIMEOUT_S = 600

_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>ottla</groupId><artifactId>bench</artifactId><version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId>
      <version>{version}</version>
    </dependency>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId>
      <version>{version}</version>
    </dependency>
    <dependency>
      <groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>1.7.36</version>
    </dependency>
  </dependencies>
</project>
"""


def kafka_jars(version: str | None) -> tuple[Path, str]:
    """Return the directory with the jars and their version. Download what is not cached.

    Without a version: the newest one in the cache, else the newest published, else the pinned one.
    `newest` checks Maven even if a version is cached.
    """
    _require("java")
    if version is None:
        version = _newest_cached() or NEWEST
    if version != NEWEST:
        return _cached_or_fetched(version), version
    try:
        version = _newest_published()
        return _cached_or_fetched(version), version
    except BenchError:
        return _cached_or_fetched(PINNED_VERSION), PINNED_VERSION


def _require(program: str) -> None:
    if shutil.which(program) is None:
        raise BenchError(f"what comes from Maven cannot be had: `{program}` is not installed")


def _directory(version: str) -> Path:
    return cache_directory() / f"kafka-{version}"


def _newest_cached() -> str | None:
    found = [path.name.removeprefix("kafka-") for path in cache_directory().glob("kafka-*")]
    releases = [version for version in found if re.fullmatch(r"\d+(\.\d+)+", version)]
    return max(releases, key=_numbers, default=None)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def _newest_published() -> str:
    """Return the newest release that is at least the oldest supported version."""
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as work:
        _copy_jars(f"[{OLDEST_SUPPORTED},)", Path(work), only="kafka_2.13")
        names = [path.name for path in Path(work, "jars").glob("kafka_2.13-*.jar")]
    matches = [re.fullmatch(r"kafka_2\.13-(\d+(?:\.\d+)+)\.jar", name) for name in names]
    found = [match[1] for match in matches if match]
    if not found:
        raise BenchError("Maven named no released version of Apache Kafka")
    return max(found, key=_numbers)


def _cached_or_fetched(version: str) -> Path:
    directory = _directory(version)
    if not directory.is_dir():
        with tempfile.TemporaryDirectory(prefix="fetching-", dir=cache_directory()) as work:
            _copy_jars(version, Path(work))
            keep_jars(Path(work, "jars"), directory)
    return directory


def keep_jars(jars: Path, directory: Path) -> None:
    """Move complete jars into the cache, unless another process was faster."""
    try:
        jars.rename(directory)
    except OSError:
        if not directory.is_dir():
            raise


def _copy_jars(version: str, work: Path, only: str | None = None) -> None:
    copy_jars(_POM.format(version=version), work, f"Apache Kafka {version}", only)


def copy_jars(pom: str, work: Path, what: str, only: str | None = None) -> None:
    """Download the dependencies of the pom into `work`/jars. Raise BenchError if that fails."""
    _require("mvn")
    Path(work, "pom.xml").write_text(pom, encoding="utf-8")
    goal = "dependency:copy-dependencies"
    command = ["mvn", "-q", "-B", goal, f"-DoutputDirectory={work / 'jars'}"]
    if only is not None:
        command.append(f"-DincludeArtifactIds={only}")
    try:
        done = subprocess.run(
            command, cwd=work, capture_output=True, text=True, timeout=MAVEN_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise BenchError(f"Maven took over {MAVEN_TIMEOUT_S} s for {what}") from error
    if done.returncode != 0:
        errors = [line for line in done.stdout.splitlines() if "ERROR" in line]
        reason = errors[0] if errors else "it gave no reason"
        raise BenchError(f"Maven could not fetch {what}: {reason}")
