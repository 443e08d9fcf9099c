"""Finds unbounded state and impossible output modes in Spark's plans.

A streaming aggregation, dedup or join keeps rows as state. Spark can drop them only with a
watermark that the operator can use: an aggregation or dedup needs a key with the watermark, a join
needs keys with it or a range between two event times. An aggregation without keys keeps one row.
Spark itself calls `UnsupportedOperationChecker` when a query starts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from ottla_spark.pipelines.frames.frames import WATERMARK_MARK

if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject
    from pyspark.sql import DataFrame

_SOME_TIME_MS: Final = 1_700_000_000_000
_ADVICE: Final = "set `unbounded: true` if there are few keys"


def unbounded_state(rows: DataFrame) -> list[str]:
    """Return a message for each operator of the plan whose state grows without bound."""
    plan = rows._jdf.queryExecution().analyzed()
    found = [why for node in _nodes(plan) if (why := _why_unbounded(node))]
    if any(_is_stream_join(node) for node in _nodes(plan)):
        optimizer = rows.sparkSession._jsparkSession.sessionState().optimizer()
        joins = [node for node in _nodes(optimizer.execute(plan)) if _is_stream_join(node)]
        found += [why for join in joins if (why := _why_join_unbounded(rows, join))]
    return list(dict.fromkeys(found))


def check_output_mode(rows: DataFrame, mode: str) -> None:
    """Raise Spark's AnalysisException if a stream of these rows cannot use the output mode."""
    jvm = _jvm(rows)
    checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    output_mode = getattr(jvm.org.apache.spark.sql.streaming.OutputMode, mode.capitalize())()
    checker.checkForStreaming(rows._jdf.queryExecution().analyzed(), output_mode)


def _jvm(rows: DataFrame) -> JavaObject:
    jvm = rows.sparkSession._jvm
    assert jvm is not None, "a classic session has a JVM"
    return jvm


def _nodes(plan: JavaObject) -> Iterator[JavaObject]:
    pending = [plan]
    while pending:
        node = pending.pop()
        yield node
        children = node.children()
        pending += [children.apply(index) for index in range(children.size())]


def _why_unbounded(node: JavaObject) -> str | None:
    kind = node.nodeName()
    if kind not in ("Aggregate", "Distinct", "Deduplicate") or not node.isStreaming():
        return None
    if kind == "Aggregate":
        keys, what = node.groupingExpressions(), "aggregation"
        advice = "group by window(...) of the watermark's column"
        if keys.size() == 0:
            return None
    elif kind == "Distinct":
        keys, what = node.output(), "DISTINCT"
        advice = "select the watermark's column too"
    else:
        keys, what, advice = node.keys(), "dedup", "give its input a watermark"
    if _any_watermarked(keys):
        return None
    return f"unbounded state: this {what} never drops a key; {advice}, or {_ADVICE}"


def _any_watermarked(expressions: JavaObject) -> bool:
    return any(
        key.getClass().getSimpleName() == "AttributeReference"
        and key.metadata().contains(WATERMARK_MARK)
        for key in (expressions.apply(index) for index in range(expressions.size()))
    )


def _is_stream_join(node: JavaObject) -> bool:
    return bool(
        node.nodeName() == "Join" and node.left().isStreaming() and node.right().isStreaming()
    )


def _why_join_unbounded(rows: DataFrame, join: JavaObject) -> str | None:
    """Return why Spark cannot clean the state of a join of two streams, by Spark's own rule."""
    jvm = _jvm(rows)
    helper = jvm.org.apache.spark.sql.catalyst.analysis.StreamingJoinHelper
    if helper.isWatermarkInJoinKeys(join):
        return None
    now = jvm.scala.Some(_SOME_TIME_MS)
    left, right = join.left().outputSet(), join.right().outputSet()
    ends = [
        helper.getStateValueWatermark(side, other, join.condition(), now).isDefined()
        for side, other in ((left, right), (right, left))
    ]
    if all(ends):
        return None
    which = "either side" if not any(ends) else ("the right side" if ends[0] else "the left side")
    return (
        f"unbounded state: this join never drops the rows of {which}; give both sides a"
        " watermark and join on a range of their times, such as"
        f" b.ts BETWEEN a.ts AND a.ts + INTERVAL 5 MINUTES, or {_ADVICE}"
    )
