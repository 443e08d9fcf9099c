"""Options and columns of the sink: which are accepted, which are rejected, and the messages."""

from __future__ import annotations

import pickle

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
)

from ottla.records.compression import CODECS
from pyspark_ottla.options.option_values import OptionError
from pyspark_ottla.options.sink_options import REFUSED, WITHOUT_EFFECT, SinkSettings, sink_settings
from pyspark_ottla.sink.row_schema import check_schema


def settings(**options: str) -> SinkSettings:
    named = {name.replace("_", "."): text for name, text in options.items()}
    return sink_settings({"kafka.bootstrap.servers": "h:1"} | named)


def test_the_defaults() -> None:
    made = settings()
    assert (made.topic, made.acks, made.idempotent, made.codec) == (None, -1, True, 0)
    assert (made.max_in_flight, made.max_in_flight_per_partition) == (5, 5)
    assert pickle.loads(pickle.dumps(made)) == made


def test_every_property_is_read() -> None:
    made = sink_settings(
        {
            "kafka.bootstrap.servers": "h:1",
            "Topic": " t ",
            "kafka.acks": "1",
            "KAFKA.compression.type": "zstd",
            "kafka.compression.zstd.level": "7",
            "kafka.batch.size": "1000",
            "kafka.buffer.memory": "2000",
            "kafka.max.request.size": "3000",
            "kafka.max.in.flight.requests.per.connection": "3",
            "kafka.max.block.ms": "4",
            "kafka.delivery.timeout.ms": "5",
            "kafka.retries": "6",
            "kafka.retry.backoff.ms": "7",
            "kafka.retry.backoff.max.ms": "8",
            "kafka.partitioner.ignore.keys": "TRUE",
            "kafka.request.timeout.ms": "9",
            "kafka.linger.ms": "10",
        }
    )
    assert made == SinkSettings(
        client=made.client,
        topic="t",
        acks=1,
        idempotent=False,
        codec=CODECS["zstd"],
        level=7,
        batch_bytes=1000,
        buffer_bytes=2000,
        max_request_bytes=3000,
        max_in_flight=3,
        max_block_ms=4,
        delivery_timeout_ms=5,
        retries=6,
        retry_backoff_ms=7,
        retry_backoff_max_ms=8,
        ignore_keys=True,
    )
    assert (made.client.request_timeout_ms, made.max_in_flight_per_partition) == (9, 1)


def test_a_batch_is_never_larger_than_a_request() -> None:
    assert settings(kafka_max_request_size="1000").batch_bytes == 1000
    assert settings(kafka_batch_size="0").batch_bytes == 1


@pytest.mark.parametrize("name", sorted(WITHOUT_EFFECT))
def test_what_only_java_knows_has_no_effect(name: str) -> None:
    assert settings(**{f"kafka.{name}": "whatever"}) == settings()


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_what_is_refused(name: str) -> None:
    with pytest.raises(OptionError, match=f"kafka.{name} cannot be set: "):
        settings(**{f"kafka.{name}": "x"})


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"kafka_acks": "2"}, "expected all, 1 or 0"),
        ({"kafka_compression_type": "zip"}, "expected none, gzip, snappy, lz4, zstd"),
        (
            {"kafka_compression_type": "gzip", "kafka_compression_gzip_level": "10"},
            "expected -1 to 9",
        ),
        ({"kafka_batch_size": "-1"}, "whole number from 0 on"),
        ({"kafka_max_request_size": "1e6"}, "whole number from 1 on"),
        ({"kafka_enable_idempotence": "yes"}, "expected true or false"),
        ({"kafka_enable_idempotence": "true", "kafka_acks": "1"}, "kafka.acks must be all"),
        ({"kafka_enable_idempotence": "true", "kafka_retries": "0"}, "must not be 0"),
        (
            {
                "kafka_enable_idempotence": "true",
                "kafka_max_in_flight_requests_per_connection": "6",
            },
            "at most 5",
        ),
        ({"kafka_compression_typ": "lz4"}, "did you mean kafka.compression.type"),
        ({"kafka_security_protocol": "SSH"}, "kafka.security.protocol: 'SSH' should be one of"),
    ],
)
def test_wrong_values(options: dict[str, str], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        settings(**options)


def test_brokers_are_needed() -> None:
    with pytest.raises(OptionError, match=r"kafka\.bootstrap\.servers must be set"):
        sink_settings({"topic": "t"})


def test_idempotence_gives_way_unless_it_was_asked_for() -> None:
    assert not settings(kafka_retries="0").idempotent
    assert not settings(kafka_max_in_flight_requests_per_connection="6").idempotent
    assert not settings(kafka_enable_idempotence="false").idempotent
    assert settings(kafka_enable_idempotence="true").idempotent


STRING, BINARY, INT, LONG = StringType(), BinaryType(), IntegerType(), LongType()


def headers_of(key: str = "key", value: str = "value", nullable: bool = True) -> ArrayType:
    return ArrayType(StructType().add(key, STRING).add(value, BINARY, nullable), nullable)


def schema(**columns: DataType) -> StructType:
    made = StructType()
    for name, kind in columns.items():
        made = made.add(name, kind)
    return made


@pytest.mark.parametrize(
    ("columns", "topic"),
    [
        (schema(value=STRING), "t"),
        (schema(value=BINARY, topic=STRING), None),
        (
            schema(key=BINARY, value=STRING, topic=STRING, headers=headers_of(), partition=INT),
            None,
        ),
        (schema(value=STRING, topic=LONG, offset=LONG), "t"),
        (schema(value=STRING, headers=headers_of(nullable=False)), "t"),
    ],
)
def test_columns_that_can_be_written(columns: StructType, topic: str | None) -> None:
    check_schema(columns, topic)


@pytest.mark.parametrize(
    ("columns", "topic", "words"),
    [
        (schema(value=STRING), None, "topic option required when no 'topic' attribute is present"),
        (schema(key=STRING), "t", "Required attribute 'value' not found"),
        (schema(Value=STRING), "t", "Required attribute 'value' not found"),
        (
            schema(value=INT),
            "t",
            r"value attribute unsupported type int\. value must be a\(n\) string or binary",
        ),
        (schema(value=STRING, key=LONG), "t", "key attribute unsupported type bigint"),
        (schema(value=STRING, topic=BINARY), None, r"topic must be a\(n\) string"),
        (schema(value=STRING, partition=LONG), "t", r"partition must be a\(n\) int"),
        (
            schema(value=STRING, headers=MapType(STRING, BINARY)),
            "t",
            r"headers must be a\(n\) array<struct<key:string,value:binary>>",
        ),
        (schema(value=STRING, headers=headers_of("k", "v")), "t", "headers must be"),
    ],
)
def test_columns_that_cannot_be_written(columns: StructType, topic: str | None, words: str) -> None:
    with pytest.raises(OptionError, match=words):
        check_schema(columns, topic)


@pytest.mark.parametrize(
    ("options", "once"),
    [
        ({}, True),
        ({"deliveryGuarantee": "exactly-once"}, True),
        ({"DELIVERYGUARANTEE": "At-Least-Once"}, False),
        ({"kafka.acks": "1"}, False),
        ({"kafka.enable.idempotence": "false"}, False),
    ],
)
def test_rows_are_written_once_unless_that_is_impossible(
    options: dict[str, str], once: bool
) -> None:
    assert sink_settings({"kafka.bootstrap.servers": "h:1"} | options).exactly_once is once


def test_a_write_is_named_by_application_and_version() -> None:
    made = sink_settings({"kafka.bootstrap.servers": "h:1", "txnAppId": "a", "txnVersion": "7"})
    assert made.application == ("a", 7)
    assert settings().application is None


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"deliveryGuarantee": "maybe"}, "expected exactly-once or at-least-once"),
        ({"deliveryGuarantee": "exactly-once", "kafka.acks": "1"}, "needs an idempotent producer"),
        ({"txnAppId": "a"}, "set both"),
        ({"txnVersion": "1"}, "set both"),
        ({"txnAppId": "a", "txnVersion": "-1"}, "a whole number from 0 on"),
        ({"txnAppId": "a", "txnVersion": "1", "kafka.acks": "1"}, "need deliveryGuarantee"),
        ({"kafka.transaction.timeout.ms": "0"}, "a whole number from 1 on"),
        ({"kafka.transactional.id": "mine"}, "names its transactions itself"),
    ],
)
def test_guarantees_that_cannot_be_given(options: dict[str, str], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        sink_settings({"kafka.bootstrap.servers": "h:1"} | options)
