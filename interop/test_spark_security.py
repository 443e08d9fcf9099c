"""The Spark source and sink, and a load, against an Apache Kafka that asks for TLS and a login."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from secured_kafka import Secured, login, start_secured

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(300)
COMMAND_TIMEOUT_S = 120
TOPIC_TIMEOUT_S = 30
TOPICS = ("first", "second", "by-certificate", "to-load")
ROWS = 500


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with start_secured(tmp_path_factory.mktemp("kafka")) as running:
        admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{running.ports['PLAINTEXT']}"})
        for done in admin.create_topics([NewTopic(name, 2, 1) for name in TOPICS]).values():
            done.result(TOPIC_TIMEOUT_S)
        yield running


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    from ottla_spark.session import session

    started = session("local[2]")
    yield started
    started.stop()


def options(properties: dict[str, str]) -> dict[str, str]:
    return {f"kafka.{name}": text for name, text in properties.items()}


def write(spark: SparkSession, topic: str, properties: dict[str, str]) -> None:
    rows = spark.range(ROWS).selectExpr("string(id) key", "concat('v', id) value")
    writer = rows.write.format("ottla").mode("append").option("topic", topic)
    writer.options(**options(properties)).save()


def read(spark: SparkSession, topic: str, properties: dict[str, str]) -> list[str]:
    reader = spark.read.format("ottla").option("subscribe", topic)
    rows = reader.options(**options(properties)).load()
    return sorted(row.value for row in rows.selectExpr("string(value) value").collect())


def test_a_login_over_tls(spark: SparkSession, kafka: Secured, tmp_path: Path) -> None:
    secured = kafka.properties("SASL_SSL") | login("SCRAM-SHA-512")
    write(spark, "first", secured)
    wanted = sorted(f"v{number}" for number in range(ROWS))
    assert read(spark, "first", secured) == wanted
    stream = spark.readStream.format("ottla").option("subscribe", "first")
    query = (
        stream.option("startingOffsets", "earliest")
        .option("groupId", "copying")
        .options(**options(secured))
        .load()
        .writeStream.format("ottla")
        .option("topic", "second")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .options(**options(secured))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert read(spark, "second", secured) == wanted


def test_a_client_certificate(spark: SparkSession, kafka: Secured) -> None:
    key = str(kafka.directory / "client.pem")
    secured = kafka.properties("MTLS", ssl_keystore_type="PEM", ssl_keystore_location=key)
    write(spark, "by-certificate", secured)
    assert len(read(spark, "by-certificate", secured)) == ROWS


def test_a_wrong_password_is_said_in_words(spark: SparkSession, kafka: Secured) -> None:
    from pyspark.errors import PySparkException

    wrong = kafka.properties("SASL_SSL") | login("SCRAM-SHA-256", "wrong")
    words = "refused user alice .SCRAM-SHA-256.*Check"
    with pytest.raises(PySparkException, match=words):
        read(spark, "first", wrong)
    with pytest.raises(PySparkException, match=words):
        write(spark, "first", wrong)


def test_a_load(spark: SparkSession, kafka: Secured, tmp_path: Path) -> None:
    secured = kafka.properties("SASL_SSL") | login("PLAIN")
    write(spark, "to-load", secured)

    def load(properties: dict[str, str]) -> subprocess.CompletedProcess[str]:
        config = tmp_path / "client.properties"
        lines = "".join(f"{name}={text}\n" for name, text in properties.items())
        config.write_text(lines.replace("\\", "\\\\"))
        words = ["load", "to-load", "--to", "parquet:table", "--command-config", str(config)]
        return subprocess.run(
            [sys.executable, "-m", "ottla.cli.main", *words],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=COMMAND_TIMEOUT_S,
            check=False,
        )

    refused = load(kafka.properties("SASL_SSL") | login("PLAIN", "wrong"))
    assert refused.returncode != 0
    assert "refused user alice (PLAIN" in refused.stderr
    assert "Traceback" not in refused.stderr
    done = load(secured)
    assert done.returncode == 0, done.stderr
    assert spark.read.parquet(str(tmp_path / "table")).count() == ROWS
