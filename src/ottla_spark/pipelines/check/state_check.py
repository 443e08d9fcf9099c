"""Finds state that grows for ever, and output modes that cannot be, in Spark's own plans.

A streaming aggregation, dedup or join remembers rows. Only a watermark lets Spark forget them,
and only where the operator can use it: an aggregation and a dedup by a key that carries it, a
join by keys that carry it or by a range between two event times. Without keys an aggregation
remembers one row. `UnsupportedOperationChecker` is what Spark asks when a query starts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from ottla_spark.pipelines.frames.frames import WATERMARK_MARK

if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject
    from pyspark.sql import DataFrame

_SOME_TIME_MS: Final = 1_700_000_000_000
_ADVICE: Final = "say `unbounded: true` if its keys are few"


def unbounded_state(rows: DataFrame) -> list[str]:
    """What of this plan remembers rows for ever, each with what to do about it."""
    plan = rows._jdf.queryExecution().analyzed()
    found = [why for node in _nodes(plan) if (why := _why_unbounded(node))]
    if any(_is_stream_join(node) for node in _nodes(plan)):
        optimizer = rows.sparkSession._jsparkSession.sessionState().optimizer()
        joins = [node for node in _nodes(optimizer.execute(plan)) if _is_stream_join(node)]
        found += [why for join in joins if (why := _why_join_unbounded(rows, join))]
    return list(dict.fromkeys(found))


def check_output_mode(rows: DataFrame, mode: str) -> None:
    """Raise Spark's AnalysisException unless a stream of these rows can be written so."""
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
        keys, what, advice = node.keys(), "dedup", "give what it reads a watermark"
    if _any_watermarked(keys):
        return None
    return f"unbounded state: this {what} never forgets a key; {advice}, or {_ADVICE}"


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
    """The rule by which Spark cleans the state of a join of two streams."""
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
        f"unbounded state: this join never forgets the rows of {which}; give both sides a"
        " watermark and join on a range of their times, such as"
        f" b.ts BETWEEN a.ts AND a.ts + INTERVAL 5 MINUTES, or {_ADVICE}"
    )
