"""Parts that sources, steps and sinks have in common."""

from __future__ import annotations

from collections.abc import Sequence

from ottla_spark.pipelines.spec.durations import EXPECTED, duration_ms
from ottla_spark.pipelines.spec.fields import Fields
from ottla_spark.pipelines.spec.model import Watermark
from ottla_spark.pipelines.spec.problems import closest, listed
from ottla_spark.pipelines.spec.yaml_tree import Scalar


def read_watermark(fields: Fields) -> Watermark | None:
    """`watermark: {column: ts, delay: 10 minutes}`."""
    below = fields.below("watermark")
    if below is None:
        return None
    column = below.word("column", required="the column of event time")
    delay = below.word("delay", required="how late a row may come, such as 10 minutes")
    below.done()
    if column is None or delay is None:
        return None
    delay_ms = duration_ms(delay.text)
    if delay_ms is None:
        below.complain("delay", f"{delay.text!r} {EXPECTED}", delay.line)
        return None
    return Watermark(column, delay_ms)


def read_inputs(fields: Fields, names: Sequence[str], required: str) -> tuple[Scalar, ...]:
    """`from: name` or `from: [name, name]`, of the sources and steps that the file has."""
    found = fields.words("from", required=required)
    known = {name.lower() for name in names}
    for name in found:
        if name.text.lower() not in known:
            hint = closest(name.text, names) or f"; there are {listed(names)}"
            fields.complain("from", f"there is no source or step {name.text!r}{hint}", name.line)
    return found
