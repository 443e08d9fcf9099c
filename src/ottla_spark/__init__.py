"""Ottla on Spark: sessions, loads of topics into tables, pipelines."""

from __future__ import annotations

from ottla_spark.api import load, read, read_stream, write
from ottla_spark.java import NoSpark
from ottla_spark.pipelines.api import pipeline
from ottla_spark.session import session
from ottla_spark.stream_metrics import source_metrics

__all__ = [
    "NoSpark",
    "load",
    "pipeline",
    "read",
    "read_stream",
    "session",
    "source_metrics",
    "write",
]
