"""Starts the query of a sink. Each sink has its own query, checkpoint and consumer group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla_spark.loads.state.checkpoint import Checkpoint
from ottla_spark.loads.state.storage import HadoopStorage
from ottla_spark.pipelines.check.pipeline_check import Checked
from ottla_spark.pipelines.frames.frames import Frames, own_session
from ottla_spark.pipelines.frames.records import encode
from ottla_spark.pipelines.frames.source_frames import SourceFrames
from ottla_spark.pipelines.frames.topic_options import sink_options
from ottla_spark.pipelines.run.table_batches import TableBatches
from ottla_spark.pipelines.spec.model import Always, Sink, TopicSink, Trigger
from pyspark_ottla.options.sink_options import sink_settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

_STATE_STORE: Final = "spark.sql.streaming.stateStore"
STATE_SETTINGS: Final = {
    f"{_STATE_STORE}.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    f"{_STATE_STORE}.rocksdb.changelogCheckpointing.enabled": "true",
}


def frames_for(checked: Checked, spark: SparkSession, sink: str) -> Frames:
    """Return DataFrames whose topics commit their offsets to the group of a sink."""
    session = own_session(spark)
    for name, value in _settings(checked).items():
        if session.conf.isModifiable(name):
            session.conf.set(name, value)
    sources = SourceFrames(checked.spec, session, checked.spec.group_of(sink))
    return Frames(sources, checked.graph, checked.functions)


def start_query(
    checked: Checked, spark: SparkSession, sink: Sink, trigger: Trigger
) -> StreamingQuery:
    """Start the query that writes to a sink."""
    name = checked.graph.known(sink.input.text)
    assert name is not None, "a checked pipeline has the inputs of its sinks"
    rows = frames_for(checked, spark, sink.name).frame(name)
    writer = _writer(checked, rows, sink).outputMode(sink.mode)
    writer = writer.queryName(checked.spec.group_of(sink.name))
    checkpoint = Checkpoint(HadoopStorage(spark), checked.spec.checkpoint_of(sink.name))
    checkpoint.remove_half_planned()
    writer = writer.option("checkpointLocation", checkpoint.path)
    if isinstance(trigger, Always):
        return writer.trigger(processingTime=f"{trigger.interval_ms} milliseconds").start()
    return writer.trigger(availableNow=True).start()


def _settings(checked: Checked) -> dict[str, str]:
    return STATE_SETTINGS | {name: value.text for name, value in checked.spec.conf.items()}


def _writer(checked: Checked, rows: DataFrame, sink: Sink) -> DataStreamWriter:
    if isinstance(sink, TopicSink):
        return _topic_writer(checked, encode(rows, sink), sink)
    columns = [column.text for column in sink.partition_by]
    writer = sink.place.target.stream_writer(rows, sink.place.location, columns)
    batches = TableBatches(checked.spec, sink, rows.sparkSession)
    if writer is not None:
        batches.check_files()
        return writer
    batches.prepare(rows)
    return rows.writeStream.foreachBatch(batches)


def _topic_writer(checked: Checked, records: DataFrame, sink: TopicSink) -> DataStreamWriter:
    """Return the writer of a topic. Python sinks only append, so other modes use foreachBatch."""
    options = sink_options(checked.spec, sink)
    if sink.mode == "append":
        return records.writeStream.format("ottla").options(**options)
    once = sink_settings(options).exactly_once
    path = checked.spec.checkpoint_of(sink.name)
    checkpoint = Checkpoint(HadoopStorage(records.sparkSession), path)

    def append(batch: DataFrame, number: int) -> None:
        identity = {"txnAppId": checkpoint.query_id(), "txnVersion": number} if once else {}
        writer = batch.write.format("ottla").options(**options, **identity)
        writer.mode("append").save()

    return records.writeStream.foreachBatch(append)
