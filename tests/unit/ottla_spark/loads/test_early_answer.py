"""A load that has nothing to do, or wrong options, answers before Spark starts."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from ottla_spark.loads.errors import LoadUsageError
from ottla_spark.loads.formats.ddl_types import unknown_type
from ottla_spark.loads.options.load_options import Every, LoadOptions
from ottla_spark.loads.options.start_option import check_start
from ottla_spark.loads.options.value_format import ValueFormat
from ottla_spark.loads.run.early_answer import (
    _check_columns,
    check_place,
    has_nothing_new,
    is_new,
)
from ottla_spark.loads.run.topic_sample import TopicOffsets
from ottla_spark.loads.state.load_directory import LoadDirectory
from ottla_spark.loads.state.storage import storage_of
from ottla_spark.loads.targets.address import parse_address
from ottla_spark.loads.targets.target import Glance

END = TopicOffsets({0: 0, 1: 0}, {0: 5, 1: 0}, "id")


def loaded(tmp_path: Path) -> tuple[LoadOptions, Glance]:
    """Return a load that has finished batch 3, at offset 5 of its partition with records."""
    options = LoadOptions("t", parse_address(f"delta:{tmp_path}/table"), {})
    place = f"{tmp_path}/table/_ottla/t"
    directory = LoadDirectory(storage_of(None, place), place)
    directory.claim(options.identity)
    directory.set_topic_id("id")
    directory.set_schema_digest("")
    checkpoint = Path(directory.checkpoint.path)
    for name in ("offsets", "commits"):
        (checkpoint / name).mkdir(parents=True)
    (checkpoint / "metadata").write_text('{"id": "query"}')
    (checkpoint / "offsets" / "3").write_text('v1\n{}\n{"t": {"0": 5}}')
    (checkpoint / "commits" / "3").write_text("v1\n{}")
    return options, Glance(f"{tmp_path}/table", {"query": 3}.get)


def test_a_table_with_every_record_needs_no_spark(tmp_path: Path) -> None:
    options, table = loaded(tmp_path)
    assert has_nothing_new(options, table, END)


@pytest.mark.parametrize(
    "offsets",
    [
        replace(END, latest={0: 6, 1: 0}),
        replace(END, latest={0: 4, 1: 0}),
        replace(END, latest={0: 5, 1: 1}),
        replace(END, topic_id="another"),
    ],
    ids=["more", "fewer", "a new partition", "a recreated topic"],
)
def test_another_end_of_the_topic_needs_spark(tmp_path: Path, offsets: TopicOffsets) -> None:
    options, table = loaded(tmp_path)
    assert not has_nothing_new(options, table, offsets)


@pytest.mark.parametrize("last", [None, 2])
def test_a_table_that_lacks_a_batch_needs_spark(tmp_path: Path, last: int | None) -> None:
    options, table = loaded(tmp_path)
    assert not has_nothing_new(options, table._replace(last_batch=lambda _: last), END)
    assert not has_nothing_new(options, Glance("", lambda _: None), END)


def test_leftovers_of_a_killed_run_need_spark(tmp_path: Path) -> None:
    options, table = loaded(tmp_path)
    assert not has_nothing_new(options, table._replace(has_leftovers=True), END)


def test_an_unfinished_batch_needs_spark(tmp_path: Path) -> None:
    options, table = loaded(tmp_path)
    planned = tmp_path / "table/_ottla/t/checkpoint/offsets/4"
    planned.write_text('v1\n{}\n{"t": {"0": 5}}')
    assert not has_nothing_new(options, table, END)


def test_options_that_ask_for_more_need_spark(tmp_path: Path) -> None:
    options, table = loaded(tmp_path)
    assert not has_nothing_new(replace(options, compact=True), table, END)
    assert not has_nothing_new(replace(options, when=Every(1)), table, END)


def test_options_of_another_load_are_refused(tmp_path: Path) -> None:
    options, table = loaded(tmp_path)
    with pytest.raises(LoadUsageError, match="with headers 'false'"):
        has_nothing_new(replace(options, headers=True), table, END)


def test_another_schema_needs_spark(tmp_path: Path) -> None:
    options, table = loaded(tmp_path)
    noted = tmp_path / "table/_ottla/t/load.json"
    noted.write_text(json.dumps(json.loads(noted.read_text()) | {"format": "json"}))
    asked = replace(options, format=ValueFormat.JSON, schema="n BIGINT")
    assert not has_nothing_new(asked, table, END)
    (tmp_path / "table/_ottla/t/schema-digest").write_text(asked.schema_digest)
    assert has_nothing_new(asked, table, END)


def test_an_unknown_partition_column_is_refused() -> None:
    from ottla_spark.loads.options.partition_by import parse_partition_by

    options = LoadOptions(
        "t", parse_address("delta:/table"), {}, partition_by=parse_partition_by(["nothing"])
    )
    with pytest.raises(LoadUsageError, match="nothing"):
        _check_columns(options)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"7": 1, "0": 2, "1": 3}', "t has no partition 7; its last one is 1"),
        ('{"0": 2}', "every partition of t: 1 is missing"),
    ],
)
def test_offsets_of_other_partitions_are_refused(text: str, words: str) -> None:
    with pytest.raises(LoadUsageError, match=words):
        check_start(text, "t", [0, 1])
    check_start('{"0": 2, "1": -1}', "t", [0, 1])
    check_start("earliest", "t", [0, 1])


def test_offsets_count_for_the_first_run_only(tmp_path: Path) -> None:
    options, table = loaded(tmp_path)
    assert not is_new(options, table)
    assert is_new(replace(options, reset=True), table)
    assert is_new(replace(options, checkpoint=str(tmp_path / "other")), table)


def test_a_place_where_no_table_can_be_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LoadUsageError, match=f"{tmp_path}/file is not a directory"):
        check_place(f"{tmp_path}/file/a/table")
    check_place(f"{tmp_path}/a/b/table")
    check_place("catalog.namespace.table")
    check_place("s3://bucket/table")


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ("n WHAT", "there is no type WHAT"),
        ("n BIGINT, s STRUCT<a: INT, b: ARRAY<TEXT>>", "there is no type TEXT"),
        ('{"type": "struct", "fields": [{"name": "n"}]}', "neither DDL"),
        ("none.ddl", "the file none.ddl does not exist"),
    ],
)
def test_a_wrong_schema_is_refused(schema: str, words: str) -> None:
    options = LoadOptions(
        "t", parse_address("delta:/t"), {}, format=ValueFormat.JSON, schema=schema
    )
    with pytest.raises(LoadUsageError, match=words):
        _check_columns(options)


@pytest.mark.parametrize(
    "schema",
    [
        "id BIGINT, name STRING",
        "id: long, `a b` decimal(10, 2) NOT NULL COMMENT 'what, else', m map<string, array<int>>;",
        "s struct<a: struct<b timestamp_ntz>, c varchar(3)>, v variant",
        # Spark decides about these.
        "i INTERVAL DAY TO SECOND",
        "bigint",
        "a string collate unicode, b int",
        "a int b",
        "",
    ],
)
def test_schemas_that_spark_has_to_judge(schema: str) -> None:
    assert unknown_type(schema) == ""
