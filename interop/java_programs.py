"""Java programs as clients: Kafka's own TransactionalMessageCopier, and sources of `java/`."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

from harness.cache import cache_directory
from harness.jars import copy_jars, kafka_jars, keep_jars
from tests.harness.supervised import Supervised

SOURCES = Path(__file__).parent / "java"
COMPILE_TIMEOUT_S = 120
_JVM = ("-Xmx192m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_LOG_LEVEL = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
SIGTERM_CODE = 143
"""How a JVM ends after SIGTERM."""
_FAILED = 1
_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>ottla</groupId><artifactId>interop</artifactId><version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>{artifact}</artifactId>
      <version>{version}</version>
    </dependency>
    <dependency>
      <groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>1.7.36</version>
    </dependency>
  </dependencies>
</project>
"""


def jars_of(artifact: str) -> Path:
    """Return the directory with an artifact of Kafka and all that it needs, fetched if missing.

    Its version is that of the brokers. Raise BenchError if it cannot be fetched.
    """
    _, version = kafka_jars(None)
    directory = cache_directory() / f"{artifact}-{version}"
    if not directory.is_dir():
        with tempfile.TemporaryDirectory(prefix="fetching-", dir=cache_directory()) as work:
            pom = _POM.format(artifact=artifact, version=version)
            copy_jars(pom, Path(work), f"{artifact} {version}")
            keep_jars(Path(work, "jars"), directory)
    return directory


def compile_source(name: str, jars: Path, into: Path) -> None:
    """Compile a source of `java/` with the jars."""
    command = ["javac", "-cp", f"{jars}/*", "-d", str(into), str(SOURCES / f"{name}.java")]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=COMPILE_TIMEOUT_S, check=False
    )
    assert done.returncode == 0, done.stderr


def java_command(main_class: str, *arguments: str, class_path: str) -> list[str]:
    """Return the command that runs a class."""
    return ["java", *_JVM, _LOG_LEVEL, "-cp", class_path, main_class, *arguments]


class JavaCopier(Supervised):
    """Kafka's TransactionalMessageCopier: of one partition, or as a member of a group.

    It ends when it has read what there was when it began, and is started again.
    """

    def __init__(
        self,
        servers: str,
        log: Path,
        *,
        source: str,
        target: str,
        group: str,
        transactional_id: str,
        partition: int | None,
    ) -> None:
        jars, _ = kafka_jars(None)
        mode = ["--group-mode"] if partition is None else []
        arguments = {
            "--broker-list": servers,
            "--input-topic": source,
            "--input-partition": str(partition or 0),
            "--output-topic": target,
            "--consumer-group": group,
            "--transactional-id": transactional_id,
            "--transaction-size": "2",
            "--transaction-timeout": "10000",
        }
        super().__init__(
            java_command(
                "org.apache.kafka.tools.TransactionalMessageCopier",
                *(word for argument in arguments.items() for word in argument),
                *("--enable-random-aborts", "--use-group-metadata", *mode),
                class_path=f"{jars}/*",
            ),
            log,
            restarts_on={0, _FAILED},
            zombie_ends={_FAILED},
            stops={SIGTERM_CODE},
        )
        self.transactional_id = transactional_id


class WordCounter(Supervised):
    """An instance of the Kafka Streams application of `java/WordCount.java`."""

    def __init__(
        self, servers: str, directory: Path, number: int, *, source: str, target: str
    ) -> None:
        jars = jars_of("kafka-streams")
        state = str(directory / f"state-{number}")
        super().__init__(
            java_command(
                "WordCount", servers, "counter", state, source, target,
                class_path=f"{directory}:{jars}/*",
            ),
            directory / f"counter-{number}.log",
            restarts_on={0, _FAILED},
            zombie_ends=(),
            stops={SIGTERM_CODE},
        )  # fmt: skip
