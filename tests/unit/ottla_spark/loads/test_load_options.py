"""Options of a load: how they are parsed, and which exclude each other."""

from __future__ import annotations

import os

import pytest

from ottla_spark.loads.errors import LoadUsageError
from ottla_spark.loads.options.dead_letter_option import DeadLetters, parse_dead_letters
from ottla_spark.loads.options.load_options import LoadOptions
from ottla_spark.loads.options.partition_by import PartitionBy, parse_partition_by
from ottla_spark.loads.options.quantities import parse_duration_s, parse_size
from ottla_spark.loads.options.value_format import ValueFormat
from ottla_spark.loads.targets.address import TableAddress, parse_address
from pyspark_ottla.options.kafka_options import kafka_options

CLIENT = {"bootstrap.servers": "127.0.0.1:9092"}


@pytest.mark.parametrize(
    ("text", "scheme", "location", "name"),
    [
        ("parquet:/a/b", "parquet", "/a/b", "b"),
        ("parquet:b/", "parquet", os.path.abspath("b"), "b"),
        ("parquet:file:///a/b c/", "parquet", "/a/b c", "b c"),
        ("delta:s3a://bucket/t/", "delta", "s3a://bucket/t", "t"),
        ("iceberg:cat.ns.t", "iceberg", "cat.ns.t", "t"),
    ],
)
def test_targets(text: str, scheme: str, location: str, name: str) -> None:
    address = parse_address(text)
    assert (address.scheme, address.location, address.name) == (scheme, location, name)


@pytest.mark.parametrize(
    "text", ["", "parquet", "parquet:", "csv:/a", "iceberg:a.b", "iceberg:a..c"]
)
def test_other_targets_are_refused(text: str) -> None:
    with pytest.raises(LoadUsageError, match="should be"):
        parse_address(text)


def test_dead_letters() -> None:
    assert parse_dead_letters(None) == DeadLetters()
    assert parse_dead_letters("topic:bad") == DeadLetters(topic="bad")
    assert parse_dead_letters("parquet:/bad") == DeadLetters(path="/bad")
    with pytest.raises(LoadUsageError, match="topic:NAME"):
        parse_dead_letters("bad")


@pytest.mark.parametrize(
    ("text", "size"), [("1", 1), ("128m", 128 << 20), ("1g", 1 << 30), ("1.5KiB", 1536)]
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text, "--x") == size


@pytest.mark.parametrize("text", ["", "0", "-1", "many", "1x", "99999g"])
def test_other_sizes_are_refused(text: str) -> None:
    with pytest.raises(LoadUsageError, match="--x"):
        parse_size(text, "--x")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("5m", 300), ("1h30m", 5400), ("500ms", 0.5), ("2d", 172800)],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration_s(text, "--x") == seconds


@pytest.mark.parametrize("text", ["", "5", "m", "5 m", "5m later"])
def test_other_durations_are_refused(text: str) -> None:
    with pytest.raises(LoadUsageError, match="--x"):
        parse_duration_s(text, "--x")


def test_partitions() -> None:
    found = parse_partition_by(["day( ts ), country", "hour(timestamp)"])
    assert found == (
        PartitionBy("ts", "day"),
        PartitionBy("country"),
        PartitionBy("timestamp", "hour"),
    )
    assert [each.column for each in found] == ["ts_day", "country", "timestamp_hour"]


@pytest.mark.parametrize("text", ["day(ts", "ts)", "week(ts)", "day()", "a b", "a,a"])
def test_other_partitions_are_refused(text: str) -> None:
    with pytest.raises(LoadUsageError, match="--partition-by"):
        parse_partition_by([text])


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"upsert": True}, "--upsert"),
        ({"schema": "a INT"}, "--schema"),
        ({"evolve": True}, "--evolve"),
        ({"coordinates": True}, "--coordinates"),
        ({"registry": "http://x"}, "--registry"),
        ({"message": "M"}, "--message"),
        ({"format": ValueFormat.JSON, "message": "M"}, "--message"),
        ({"to": TableAddress("iceberg", "a.b.c"), "compact": True}, "--compact"),
        ({"starting_offsets": "5"}, "--from"),
    ],
)
def test_options_that_exclude_each_other(given: dict[str, object], words: str) -> None:
    options: dict[str, object] = {
        "topic": "t",
        "to": TableAddress("parquet", "/p"),
        "client": CLIENT,
    }
    with pytest.raises(LoadUsageError, match=words):
        LoadOptions(**(options | given))  # type: ignore[arg-type]


def test_the_group_is_named_after_the_load() -> None:
    first = LoadOptions("t", TableAddress("parquet", "/a/orders"), CLIENT)
    second = LoadOptions("t", TableAddress("parquet", "/b/orders"), CLIENT)
    assert first.group_id.startswith("ottla-load.t.orders.")
    assert first.group_id != second.group_id
    assert LoadOptions("t", first.to, CLIENT, group="mine").group_id == "mine"


@pytest.mark.parametrize(
    ("properties", "option", "expected"),
    [
        ({}, None, True),
        ({"isolation.level": "read_uncommitted"}, None, False),
        ({"isolation.level": "read_uncommitted"}, "read_committed", True),
        ({}, "read_uncommitted", False),
    ],
)
def test_only_committed_records_are_loaded_unless_another_level_is_set(
    properties: dict[str, str], option: str | None, expected: bool
) -> None:
    to = TableAddress("parquet", "/t")
    options = LoadOptions("t", to, CLIENT | properties, isolation_level=option)
    given = {f"kafka.{name}": text for name, text in options.source_properties.items()}
    assert kafka_options(given).read_committed is options.read_committed is expected


def test_other_isolation_levels_are_refused() -> None:
    with pytest.raises(LoadUsageError, match="--isolation-level should be read_committed or"):
        LoadOptions("t", TableAddress("parquet", "/t"), CLIENT, isolation_level="serializable")
