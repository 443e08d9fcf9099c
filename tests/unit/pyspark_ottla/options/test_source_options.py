"""Options of the source: defaults, precedence, errors. No Spark session is needed."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark", reason="needs ottla[spark]")

from ottla.model.ids import TopicPartition
from pyspark_ottla.options.kafka_options import WITHOUT_EFFECT, kafka_options
from pyspark_ottla.options.offset_json import offsets_from_dict, offsets_to_dict
from pyspark_ottla.options.offset_spec import (
    EARLIEST,
    LATEST,
    AtOffsets,
    AtTimestamp,
    AtTimestamps,
    Everywhere,
    NoMatch,
)
from pyspark_ottla.options.option_values import OptionError
from pyspark_ottla.options.source_options import batch_options, source_options, stream_options
from pyspark_ottla.schema import schema

SERVERS = {"kafka.bootstrap.servers": "127.0.0.1:9092"}
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def options(**given: str) -> dict[str, str]:
    names = {"subscribe": "t"} if not given.keys() & {"assign", "subscribePattern"} else {}
    return SERVERS | names | given


def test_defaults_are_those_of_sparks_own_source() -> None:
    batch, stream = batch_options(options()), stream_options(options())
    assert (batch.start, batch.end) == (Everywhere(EARLIEST), Everywhere(LATEST))
    assert stream.start == Everywhere(LATEST)
    assert stream.max_trigger_delay_ms == 15 * 60_000
    assert (stream.max_offsets, stream.min_offsets) == (None, None)
    source = batch.source
    assert source.fail_on_data_loss
    assert not source.kafka.read_committed
    assert source.columns == (
        "key",
        "value",
        "topic",
        "partition",
        "offset",
        "timestamp",
        "timestampType",
    )


def test_offsets_as_json() -> None:
    given = options(
        startingOffsets='{"t": {"0": 23, "1": -2}}', endingOffsets='{"t":{"0":30,"1":-1}}'
    )
    found = batch_options(given)
    assert found.start == AtOffsets({T0: 23, T1: EARLIEST})
    assert found.end == AtOffsets({T0: 30, T1: LATEST})


def test_one_timestamp_wins_over_one_for_each_which_wins_over_offsets() -> None:
    given = options(
        startingOffsets="earliest",
        startingOffsetsByTimestamp='{"t": {"0": 5}}',
        startingTimestamp="7",
        startingOffsetsByTimestampStrategy="LATEST",
    )
    assert stream_options(given).start == AtTimestamp(7, NoMatch.LATEST)
    del given["startingTimestamp"]
    assert stream_options(given).start == AtTimestamps({T0: 5}, NoMatch.LATEST)
    del given["startingOffsetsByTimestamp"]
    assert stream_options(given).start == Everywhere(EARLIEST)


def test_an_ending_timestamp_after_every_record_is_the_end() -> None:
    found = batch_options(options(endingTimestamp="7", startingOffsetsByTimestampStrategy="error"))
    assert found.end == AtTimestamp(7, NoMatch.LATEST)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"startingOffsets": "latest"}, "cannot start at latest"),
        ({"startingOffsets": '{"t":{"0":-1}}'}, "startingOffsets of t-0 is -1"),
        ({"endingOffsets": "earliest"}, "cannot end at earliest"),
        ({"endingOffsets": '{"t":{"0":-2}}'}, "endingOffsets of t-0 is -2"),
        (
            {"startingOffsets": '{"t":{"0":5}}', "endingOffsets": '{"t":{"0":4}}'},
            "t-0 starts at offset 5, after its end 4",
        ),
        (
            {"startingOffsets": '{"t":{"0":5}}', "endingOffsets": '{"t":{"1":9}}'},
            "only one of them names t-0, t-1",
        ),
        (
            {
                "startingOffsetsByTimestamp": '{"t":{"0":5}}',
                "endingOffsetsByTimestamp": '{"t":{"0":4}}',
            },
            "starts at timestamp 5",
        ),
    ],
)
def test_what_a_batch_cannot_mean(given: dict[str, str], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        batch_options(options(**given))


@pytest.mark.parametrize("name", ["endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"])
def test_a_stream_has_no_end(name: str) -> None:
    with pytest.raises(OptionError, match=f"{name} is for batch queries"):
        stream_options(options(**{name: "latest"}))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "late",
        "{",
        "[]",
        '{"t": 5}',
        '{"t": {"x": 1}}',
        '{"t": {"-1": 1}}',
        '{"t": {"0": -3}}',
        '{"t": {"0": 1.5}}',
        '{"t": {"0": true}}',
        '{"t": {"0": "1"}}',
        '{"t": {"0": 9223372036854775808}}',
        '{"t": {"0": 1, "0": 2}}',
        '{"t": {"99999999999": 1}}',
    ],
)
def test_offsets_that_are_no_json_show_how_it_is_done(text: str) -> None:
    with pytest.raises(OptionError, match=r'earliest, latest or \{"topicA"'):
        stream_options(options(startingOffsets=text))


@pytest.mark.parametrize("text", ["", "soon", "-1", "1.5", "99999999999999999999"])
def test_timestamps_are_milliseconds(text: str) -> None:
    with pytest.raises(OptionError, match="milliseconds since 1970"):
        stream_options(options(startingTimestamp=text))


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [("15m", 900_000), ("30s", 30_000), ("500ms", 500), ("250", 250), ("1h", 3_600_000)],
)
def test_durations_as_spark_writes_them(text: str, milliseconds: int) -> None:
    assert stream_options(options(maxTriggerDelay=text)).max_trigger_delay_ms == milliseconds


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"minPartitions": "0"}, "minPartitions is '0': expected a whole number above 0"),
        ({"maxRecordsPerPartition": "x"}, "maxRecordsPerPartition"),
        ({"maxOffsetsPerTrigger": "-1"}, "maxOffsetsPerTrigger"),
        ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"}, r"\(9\) is more than .*\(8\)"),
        ({"maxTriggerDelay": "soon"}, "maxTriggerDelay is 'soon'"),
        ({"failOnDataLoss": "1"}, "expected true or false"),
        ({"columns": "key,colour"}, "'colour'"),
        ({"columns": "key,KEY"}, "each once"),
        ({"columns": ","}, "expected some of key, value"),
        ({"startingOffsetsByTimestampStrategy": "fail"}, "expected error or latest"),
        ({"assign": "{}"}, "expected at least one partition"),
        ({"assign": '{"t":["0"]}'}, "not a partition"),
        ({"subscribePattern": " "}, "is empty"),
        ({"subscribePattern": "a("}, "not a valid regular expression"),
        ({"startingoffset": "latest"}, "did you mean startingOffsets"),
        ({"maxOffsetPerTrigger": "4"}, "did you mean maxOffsetsPerTrigger"),
    ],
)
def test_wrong_values_are_named(given: dict[str, str], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        stream_options(options(**given))


def test_options_of_others_are_left_alone() -> None:
    source_options(options(path="/x", topic="t", mergeSchema="true"))


def test_columns_narrow_the_schema_in_their_order() -> None:
    found = source_options(options(columns="offset, timestamptype", includeHeaders="true"))
    assert found.columns == ("offset", "timestampType", "headers")
    assert schema(found.columns).fieldNames() == ["offset", "timestampType", "headers"]


def test_only_what_a_record_may_lack_may_be_null() -> None:
    found = schema(source_options(options(includeHeaders="true")).columns)
    assert [field.name for field in found if field.nullable] == ["key", "value", "headers"]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("auto.offset.reset", "startingOffsets"),
        ("key.deserializer", "CAST"),
        ("value.deserializer", "CAST"),
        ("key.serializer", "producer"),
        ("value.serializer", "producer"),
        ("enable.auto.commit", "groupId"),
        ("interceptor.classes", "not safe"),
    ],
)
def test_settings_that_would_break_the_contract_are_refused(name: str, words: str) -> None:
    with pytest.raises(OptionError, match=f"kafka.{name} cannot be set: .*{words}"):
        kafka_options(options(**{f"kafka.{name}": "x"}))


def test_settings_of_the_java_consumer_are_accepted() -> None:
    kafka_options(options(**{f"kafka.{name}": "x" for name in WITHOUT_EFFECT}))


def test_a_setting_no_consumer_has_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(OptionError, match=r"did you mean kafka\.max\.partition\.fetch\.bytes\?"):
        kafka_options(options(**{"kafka.max.partition.fetch.byte": "1"}))


def test_settings_are_passed_on() -> None:
    found = kafka_options(
        options(
            **{
                "kafka.client.rack": "r1",
                "kafka.isolation.level": "READ_COMMITTED",
                "kafka.fetch.max.bytes": "1000",
                "kafka.max.partition.fetch.bytes": "100",
                "kafka.fetch.max.wait.ms": "7",
                "kafka.check.crcs": "false",
                "kafka.group.id": "g",
            }
        )
    )
    assert found.client.client_rack == "r1"
    assert found.client.client_id == "ottla-spark"
    assert found.read_committed
    assert not found.check_crcs
    assert (found.fetch_max_bytes, found.max_partition_fetch_bytes) == (1000, 100)
    assert (found.fetch_max_wait_ms, found.group_id) == (7, "g")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("isolation.level", "serializable"),
        ("check.crcs", "perhaps"),
        ("fetch.max.bytes", "much"),
        ("security.protocol", "TELNET"),
        ("bootstrap.servers", "host:0"),
    ],
)
def test_wrong_settings_are_named_with_their_prefix(name: str, text: str) -> None:
    with pytest.raises(OptionError, match=rf"kafka\.{name}"):
        kafka_options(options() | {f"kafka.{name}": text})


@pytest.mark.parametrize(
    ("given", "group"),
    [
        ({}, "spark-my query"),
        ({"groupIdPrefix": "etl"}, "etl-my query"),
        ({"groupId": "mine"}, "mine"),
        ({"kafka.group.id": "theirs"}, "theirs"),
        ({"kafka.group.id": "theirs", "groupId": "mine", "groupIdPrefix": "etl"}, "mine"),
    ],
)
def test_the_group_is_named_after_the_query_unless_told_otherwise(
    given: dict[str, str], group: str
) -> None:
    assert stream_options(options(**given)).group.group_of("my query") == group


@pytest.mark.parametrize("text", ["", " ", "none", "NONE"])
def test_commits_can_be_turned_off(text: str) -> None:
    assert not stream_options(options(groupId=text)).group.enabled
    assert stream_options(options()).group.enabled


def test_offsets_become_the_json_of_sparks_own_source() -> None:
    offsets = {TopicPartition("b", 10): 3, TopicPartition("b", 9): 2, TopicPartition("a", 0): 1}
    value = offsets_to_dict(offsets)
    assert list(value) == ["a", "b"]
    assert value == {"a": {"0": 1}, "b": {"9": 2, "10": 3}}
    assert list(value["b"]) == ["9", "10"]
    assert offsets_from_dict(value) == offsets
