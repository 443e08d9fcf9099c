"""Turns an exception of Spark into one sentence: the root cause without the stack trace."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ottla.client.errors import ClientError
from ottla_spark.loads.errors import DataLost, LoadError

if TYPE_CHECKING:
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

_RAISED = re.compile(
    r"^(?:\w+\.)*\w*(?:Error|Exception|Loss|Lost|Refused|Unreachable|TimedOut|Records): (.+)$"
)
_JAVA_CALL = "An error occurred while calling"
_LOSS = "DataLoss"
LONGEST = 600


def load_error(error: PySparkException | Py4JJavaError, kept: BaseException | None) -> Exception:
    """Return the error to raise for a failed query. `kept` is what a batch raised here."""
    if isinstance(kept, LoadError | ClientError | KeyboardInterrupt):
        return kept if isinstance(kept, Exception) else LoadError("interrupted")
    text = str(kept if kept is not None else error)
    cause = root_cause(text)
    if f"{_LOSS}:" in text or "DATA_LOSS" in text:
        return DataLost(f"{cause}. Or load the remaining records with --allow-data-loss")
    return LoadError(f"the load stopped: {cause}. Run the same command to continue the load")


def root_cause(text: str) -> str:
    """Return the message of the innermost Python traceback, or else the first line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    traces = [i for i, line in enumerate(lines) if "Traceback (most recent" in line]
    after = lines[traces[-1] + 1 :] if traces else []
    said = [found[1] for line in after if (found := _RAISED.match(line))]
    if said and said[0].startswith(_JAVA_CALL):
        said = [line[2:] for line in after if line.startswith(": ")]
    cause = said[0] if said else (lines[0] if lines else "no reason given")
    return cause[:LONGEST].rstrip(".")
