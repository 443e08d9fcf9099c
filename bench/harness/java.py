"""The load generator in Java: Kafka's own client. Java compiles it when it is started."""

from __future__ import annotations

from pathlib import Path

from harness.jars import kafka_jars

JAVA_LOADS = Path(__file__).resolve().parent.parent / "java"
_JVM_FLAGS = ("-Xmx512m", "-Xms512m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")


def java_launcher() -> list[str]:
    """Return the command that runs a source of `java/` with Kafka's jars.

    Raise BenchError if there is no Java, or if the jars cannot be downloaded.
    """
    jars, _ = kafka_jars(None)
    return ["java", *_JVM_FLAGS, "-cp", f"{jars}/*"]
