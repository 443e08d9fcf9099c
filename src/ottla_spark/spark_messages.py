"""Finds the sentence that says what is wrong in the text of an exception of Spark or Java."""

from __future__ import annotations

import re

LONGEST = 600
NO_FILE_SYSTEM = "Spark has no file system for"
_CALL = "An error occurred while calling"
_CLASS = re.compile(r"^(?:[\w$]+\.)+[\w$]+: ")
_CONDITION = re.compile(r"^\[[A-Z][A-Z0-9_.]+\] ")
_STATE = re.compile(r"\s*SQLSTATE: \w{5}.*$")
_NO_FILE_SYSTEM = re.compile(
    r"Class (org\.apache\.hadoop\.fs\.\S+) not found|No FileSystem for scheme \"?(\w+)\"?"
)


def java_cause(text: str) -> str:
    """Return the innermost cause that a text of Java names, without classes and stack frames."""
    missing = _NO_FILE_SYSTEM.search(text)
    if missing:
        return _no_file_system(missing[1] or missing[2])
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    caused = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    thrown = [line.removeprefix(": ") for line in lines if line.startswith(": ")]
    told = [line for line in lines if not line.startswith((_CALL, "at "))]
    found = (caused[-1:] or thrown[:1] or told[:1] or ["no reason given"])[0]
    return without_codes(found)[:LONGEST].rstrip(".")


def without_codes(line: str) -> str:
    """Return a line of Java without class names, error conditions and SQL states."""
    shorter = _CLASS.sub("", line)
    while shorter != line:
        line, shorter = shorter, _CLASS.sub("", shorter)
    return _STATE.sub("", _CONDITION.sub("", line)) or line


def _no_file_system(what: str) -> str:
    if "s3" not in what.lower():
        return f"{NO_FILE_SYSTEM} {what}: add its package with --conf spark.jars.packages"
    return (
        f"{NO_FILE_SYSTEM} s3a: paths. Delta and Iceberg tables work without one: write"
        " s3://BUCKET/PATH. For other tables add Hadoop's module:"
        " --conf spark.jars.packages=org.apache.hadoop:hadoop-aws:VERSION, with the version of"
        " Spark's own hadoop-client-api"
    )
