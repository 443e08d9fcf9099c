"""Batch reads: columns, where they start and end, how they are cut into tasks, what they refuse."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

import pytest

from tests.support.spark_fixtures import MakeTopic, Produce

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Read: TypeAlias = Callable[..., "DataFrame"]
FIRST_MS = 1_700_000_000_000
KEPT = {"retention.ms": "-1"}  # records that old would be deleted


@pytest.fixture
def read(spark: SparkSession, bootstrap_servers: str) -> Read:
    """Return `read(subscribe=..., **options)`, which returns a batch DataFrame."""

    def make(**options: str) -> DataFrame:
        reader = spark.read.format("ottla").option("kafka.bootstrap.servers", bootstrap_servers)
        return reader.options(**options).load()

    return make


def offsets_of(frame: DataFrame) -> list[tuple[int, int]]:
    rows = frame.select("partition", "offset").collect()
    return sorted((row.partition, row.offset) for row in rows)


def test_rows_have_the_columns_of_sparks_own_source(
    read: Read, topic: MakeTopic, produce: Produce
) -> None:
    name = topic(2, configs=KEPT)
    produce(name, 3, timestamp_ms=lambda number: FIRST_MS + number, value=lambda n: None)
    frame = read(subscribe=name)
    assert frame.dtypes == [
        ("key", "binary"),
        ("value", "binary"),
        ("topic", "string"),
        ("partition", "int"),
        ("offset", "bigint"),
        ("timestamp", "timestamp"),
        ("timestampType", "int"),
    ]
    rows = frame.selectExpr("*", "unix_millis(timestamp) ms").sort("ms").collect()
    assert [bytes(row.key) for row in rows] == [b"k0", b"k1", b"k2"]
    assert [(r.value, r.topic, r.partition, r.offset, r.timestampType, r.ms) for r in rows] == [
        (None, name, number % 2, number // 2, 0, FIRST_MS + number) for number in range(3)
    ]


def test_headers_are_there_when_asked_for(read: Read, topic: MakeTopic, produce: Produce) -> None:
    name = topic()
    produce(name, 1, headers=[("a", b"1"), ("b", None)])
    produce(name, 1)
    rows = read(subscribe=name, includeHeaders="true").sort("offset").collect()
    first = [(header.key, header.value and bytes(header.value)) for header in rows[0].headers]
    assert first == [("a", b"1"), ("b", None)]
    assert rows[1].headers is None


def test_columns_reads_less_and_in_the_order_asked(
    read: Read, topic: MakeTopic, produce: Produce
) -> None:
    name = topic()
    produce(name, 2)
    frame = read(subscribe=name, columns="offset, VALUE")
    assert frame.columns == ["offset", "value"]
    assert [(r.offset, bytes(r.value)) for r in frame.sort("offset").collect()] == [
        (0, b"v0"),
        (1, b"v1"),
    ]


def test_subscribe_takes_several_topics_and_pattern_those_that_match(
    read: Read, topic: MakeTopic, produce: Produce
) -> None:
    first, second = topic(), topic()
    produce(first, 1)
    produce(second, 2)
    assert read(subscribe=f"{first}, {second}").count() == 3
    assert read(subscribePattern=f"{second[2:8]}.*").count() == 2
    assert read(subscribePattern="no-such-topic-.*").count() == 0


def test_assign_takes_single_partitions(read: Read, topic: MakeTopic, produce: Produce) -> None:
    name = topic(3)
    produce(name, 9)
    frame = read(assign=json.dumps({name: [0, 2]}))
    assert offsets_of(frame) == [(p, offset) for p in (0, 2) for offset in range(3)]


def test_starting_and_ending_offsets_as_json(
    read: Read, topic: MakeTopic, produce: Produce
) -> None:
    name = topic(2)
    produce(name, 20)
    frame = read(
        subscribe=name,
        startingOffsets=json.dumps({name: {"0": 3, "1": -2}}),
        endingOffsets=json.dumps({name: {"0": 5, "1": -1}}),
    )
    assert offsets_of(frame) == [(0, 3), (0, 4), *((1, offset) for offset in range(10))]


def test_timestamps_choose_offsets_and_win_over_offsets(
    read: Read, topic: MakeTopic, produce: Produce
) -> None:
    name = topic(2, configs=KEPT)
    produce(name, 20, timestamp_ms=lambda number: FIRST_MS + number * 1000)
    start, end = str(FIRST_MS + 5_000), str(FIRST_MS + 8_000)
    by_partition = json.dumps({name: {"0": FIRST_MS + 18_000, "1": FIRST_MS + 17_000}})
    expected = [(0, 3), (1, 2), (1, 3)]
    assert (
        offsets_of(read(subscribe=name, startingTimestamp=start, endingTimestamp=end)) == expected
    )
    # One timestamp for all wins over one for each, which wins over offsets.
    everything = read(
        subscribe=name,
        startingTimestamp=start,
        startingOffsetsByTimestamp=by_partition,
        startingOffsets="earliest",
        endingTimestamp=end,
        endingOffsets="latest",
    )
    assert offsets_of(everything) == expected
    frame = read(
        subscribe=name, startingOffsetsByTimestamp=by_partition, startingOffsets="earliest"
    )
    assert offsets_of(frame) == [(0, 9), (1, 8), (1, 9)]


def test_a_timestamp_after_every_record(read: Read, topic: MakeTopic, produce: Produce) -> None:
    name = topic(configs=KEPT)
    produce(name, 2, timestamp_ms=lambda number: FIRST_MS)
    late = str(FIRST_MS + 1)
    with pytest.raises(Exception, match="startingOffsetsByTimestampStrategy to latest"):
        read(subscribe=name, startingTimestamp=late).count()
    frame = read(
        subscribe=name, startingTimestamp=late, startingOffsetsByTimestampStrategy="latest"
    )
    assert frame.count() == 0
    assert read(subscribe=name, endingTimestamp=late).count() == 2


def test_small_partitions_share_a_task_and_min_partitions_cuts_large_ones(
    read: Read, topic: MakeTopic, produce: Produce
) -> None:
    name = topic(3)
    produce(name, 300)
    assert read(subscribe=name).rdd.getNumPartitions() == 1
    frame = read(subscribe=name, minPartitions="7")
    assert 6 <= frame.rdd.getNumPartitions() <= 8
    assert offsets_of(frame) == [(p, offset) for p in range(3) for offset in range(100)]


def test_max_records_per_partition_cuts_every_range(
    read: Read, topic: MakeTopic, produce: Produce
) -> None:
    name = topic(2)
    produce(name, 100)
    frame = read(subscribe=name, maxRecordsPerPartition="20")
    sizes = frame.groupBy("partition").count().collect()
    assert frame.rdd.getNumPartitions() == 6
    assert sorted((row.partition, row["count"]) for row in sizes) == [(0, 50), (1, 50)]
    tasks = frame.rdd.mapPartitions(lambda rows: [sum(1 for _ in rows)]).collect()
    assert max(tasks) <= 20


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_records(read: Read, topic: MakeTopic, produce: Produce, codec: str) -> None:
    name = topic()
    produce(name, 500, settings={"compression.type": codec, "linger.ms": "50"})
    rows = read(subscribe=name, columns="value,offset").sort("offset").collect()
    assert [bytes(row.value) for row in rows] == [b"v%d" % number for number in range(500)]


def test_read_committed_reads_what_no_transaction_wrote(
    read: Read, topic: MakeTopic, produce: Produce
) -> None:
    name = topic()
    produce(name, 5)
    assert read(subscribe=name, **{"kafka.isolation.level": "read_committed"}).count() == 5


def test_names_of_options_ignore_case(read: Read, topic: MakeTopic, produce: Produce) -> None:
    name = topic()
    produce(name, 4)
    frame = read(
        SUBSCRIBE=name, startingoffsets=json.dumps({name: {"0": 1}}), INCLUDEHEADERS="TRUE"
    )
    assert frame.count() == 3
    assert "headers" in frame.columns


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "exactly one of subscribe, subscribePattern, assign"),
        ({"subscribe": "t", "assign": "{}"}, "exactly one of"),
        ({"subscribe": " , "}, "expected topic names"),
        ({"subscribePattern": "("}, "not a valid regular expression"),
        ({"assign": '{"t": 0}'}, "expected e.g."),
        ({"subscribe": "t", "startingOffsets": "latest"}, "cannot start at latest"),
        ({"subscribe": "t", "startingOffsets": '{"t": {"0": -1}}'}, "t-0 is -1"),
        ({"subscribe": "t", "endingOffsets": "earliest"}, "cannot end at earliest"),
        ({"subscribe": "t", "startingOffsets": "{"}, "expected e.g. earliest, latest or"),
        ({"subscribe": "t", "kafka.auto.offset.reset": "earliest"}, "startingOffsets"),
        ({"subscribe": "t", "kafka.value.deserializer": "x"}, "DataFrame operations"),
        ({"subscribe": "t", "kafka.enable.auto.commit": "true"}, "groupId"),
        ({"subscribe": "t", "kafka.fetch.max.byte": "1"}, "did you mean kafka.fetch.max.bytes"),
        ({"subscribe": "t", "startingOffset": "earliest"}, "did you mean startingOffsets"),
        ({"subscribe": "t", "failOnDataLoss": "maybe"}, "expected true or false"),
    ],
)
def test_wrong_options_are_refused_before_anything_runs(
    read: Read, options: dict[str, str], message: str
) -> None:
    with pytest.raises(Exception, match=message):
        read(**options).count()


def test_bootstrap_servers_must_be_given(spark: SparkSession) -> None:
    with pytest.raises(Exception, match=r"kafka\.bootstrap\.servers must be set"):
        spark.read.format("ottla").option("subscribe", "t").load()


def test_a_topic_that_is_not_there_is_named(read: Read) -> None:
    with pytest.raises(Exception, match="there is no no-such-topic in the cluster"):
        read(subscribe="no-such-topic", **{"fetchOffset.retryIntervalMs": "10"}).count()


def test_a_partition_that_is_not_there_is_named(read: Read, topic: MakeTopic) -> None:
    name = topic(2)
    with pytest.raises(Exception, match=f"there is no {name}-7"):
        read(assign=json.dumps({name: [7]}), **{"fetchOffset.retryIntervalMs": "10"}).count()


def test_offsets_must_name_every_partition(read: Read, topic: MakeTopic) -> None:
    name = topic(2)
    with pytest.raises(Exception, match=f"for every partition that the query reads: add {name}-1"):
        read(subscribe=name, startingOffsets=json.dumps({name: {"0": 0}})).count()
    with pytest.raises(Exception, match=f"{name}-5, which the query does not read"):
        read(subscribe=name, startingOffsets=json.dumps({name: {"0": 0, "1": 0, "5": 0}})).count()


def test_a_start_after_the_end_is_refused(read: Read, topic: MakeTopic, produce: Produce) -> None:
    name = topic(configs=KEPT)
    produce(name, 4, timestamp_ms=lambda number: FIRST_MS + number)
    times = {"startingTimestamp": str(FIRST_MS + 3), "endingTimestamp": str(FIRST_MS + 1)}
    with pytest.raises(Exception, match=f"{name}-0 starts at offset 3, after its end 1"):
        read(subscribe=name, **times).count()


def test_offsets_beyond_the_end_are_a_loss(read: Read, topic: MakeTopic, produce: Produce) -> None:
    name = topic()
    produce(name, 4)
    options = {"subscribe": name, "endingOffsets": json.dumps({name: {"0": 9}})}
    with pytest.raises(Exception, match=rf"{name}-0: 5 records \(offsets 4 to 8\) are lost"):
        read(**options).count()
    assert read(failOnDataLoss="false", **options).count() == 4


def test_offsets_are_looked_up_at_the_first_use_of_a_frame(
    read: Read, topic: MakeTopic, produce: Produce
) -> None:
    name = topic()
    produce(name, 3)
    frame = read(subscribe=name)
    assert frame.count() == 3
    produce(name, 2)
    assert frame.count() == 3
    assert read(subscribe=name).count() == 5


def test_no_broker_is_said_at_once(spark: SparkSession) -> None:
    frame = (
        spark.read.format("ottla")
        .option("kafka.bootstrap.servers", "127.0.0.1:1")
        .option("subscribe", "t")
        .load()
    )
    with pytest.raises(Exception, match="no broker answers"):
        frame.count()


def test_a_schema_of_ones_own_is_refused(
    spark: SparkSession, bootstrap_servers: str, topic: MakeTopic
) -> None:
    reader = spark.read.format("ottla").option("kafka.bootstrap.servers", bootstrap_servers)
    frame = reader.option("subscribe", topic()).schema("a INT").load()
    with pytest.raises(Exception, match="is fixed and cannot be set"):
        frame.count()


@pytest.mark.parametrize("pushed", ["true", "false"])
def test_filters_restrict_what_is_fetched_and_change_no_result(
    spark: SparkSession, read: Read, topic: MakeTopic, produce: Produce, pushed: str
) -> None:
    """Each task reads one offset, so the tasks tell what was fetched."""
    name = topic(2, configs=KEPT)
    minutes = [0, 5, 1, 6, 2, 7]  # of each partition, in the order of offsets
    produce(name, 12, timestamp_ms=lambda number: FIRST_MS + 60_000 * minutes[number // 2])

    def once() -> DataFrame:
        return read(subscribe=name, maxRecordsPerPartition="1", pushFilters="true")

    spark.conf.set("spark.sql.python.filterPushdown.enabled", pushed)
    try:
        chosen = once().where("partition = 1 AND offset >= 2 AND offset < 4")
        assert offsets_of(chosen) == [(1, 2), (1, 3)]
        late = once().where(f"timestamp >= timestamp_millis({FIRST_MS + 6 * 60_000})")
        assert offsets_of(late) == [(0, 3), (0, 5), (1, 3), (1, 5)]
        tasks = [rows.rdd.getNumPartitions() for rows in (chosen, late)]
        assert tasks == ([2, 6] if pushed == "true" else [12, 12])
    finally:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")


def test_a_dataframe_with_filters_has_all_records_in_its_other_uses(
    read: Read, topic: MakeTopic, produce: Produce
) -> None:
    """Spark keeps the plan of the last filters that were pushed, for every use of a `load()`."""
    name = topic(2)
    produce(name, 12)
    frame = read(subscribe=name)
    one, other = frame.where("partition = 0 AND offset < 2"), frame.where("partition = 1")
    assert one.count() == 2
    assert frame.count() == 12
    assert one.union(other).count() == 2 + 6
