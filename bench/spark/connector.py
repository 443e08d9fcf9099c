"""Downloads Spark's own Kafka connector from Maven Central into the cache, for the comparison.

Its artifacts have different versions, so they are listed one by one.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from harness.cache import cache_directory
from harness.jars import copy_jars, keep_jars

VERSION = "4.2.0"
_ARTIFACTS = (
    ("org.apache.spark", "spark-sql-kafka-0-10_2.13", VERSION),
    ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0"),
    ("org.apache.kafka", "kafka-clients", "3.9.1"),
    ("org.apache.commons", "commons-pool2", "2.12.1"),
)
_DEPENDENCY = """<dependency>
  <groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>
  <exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>
</dependency>"""
_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>ottla</groupId><artifactId>bench-spark</artifactId><version>1</version>
  <dependencies>{}</dependencies>
</project>
"""


def connector_jars() -> list[Path]:
    """Return the jars of the connector. Raise BenchError if they are not available."""
    directory = cache_directory() / f"spark-kafka-{VERSION}"
    if not directory.is_dir():
        pom = _POM.format("".join(_DEPENDENCY.format(*artifact) for artifact in _ARTIFACTS))
        with tempfile.TemporaryDirectory(prefix="fetching-", dir=cache_directory()) as work:
            copy_jars(pom, Path(work), f"Spark's Kafka connector {VERSION}")
            keep_jars(Path(work, "jars"), directory)
    return sorted(directory.glob("*.jar"))
