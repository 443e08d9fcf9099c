"""Keys that sources, steps and sinks share: `watermark` and `from`."""

from __future__ import annotations

from collections.abc import Sequence

from ottla_spark.pipelines.spec.durations import EXPECTED, duration_ms
from ottla_spark.pipelines.spec.fields import Fields
from ottla_spark.pipelines.spec.model import Watermark
from ottla_spark.pipelines.spec.problems import closest, listed
from ottla_spark.pipelines.spec.yaml_tree import Scalar


def read_watermark(fields: Fields) -> Watermark | None:
    """Read `watermark: {column: ts, delay: 10 minutes}`."""
    below = fields.below("watermark")
    if below is None:
        return None
    column = below.word("column", required="name the column of event time")
    delay = below.word("delay", required="say how late a row may arrive, such as 10 minutes")
    below.done()
    if column is None or delay is None:
        return None
    delay_ms = duration_ms(delay.text)
    if delay_ms is None:
        below.complain("delay", f"{delay.text!r} {EXPECTED}", delay.line)
        return None
    return Watermark(column, delay_ms)


def read_inputs(fields: Fields, names: Sequence[str], required: str) -> tuple[Scalar, ...]:
    """Read `from: name` or `from: [name, name]`. The names are sources and steps of the file."""
    found = fields.words("from", required=required)
    known = {name.lower() for name in names}
    for name in found:
        if name.text.lower() not in known:
            hint = closest(name.text, names) or f"; the names are {listed(names)}"
            fields.complain("from", f"there is no source or step {name.text!r}{hint}", name.line)
    return found
