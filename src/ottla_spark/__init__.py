"""Data pipelines on Spark: sessions, loading topics into tables, streams from topic to topic."""

from __future__ import annotations

from ottla_spark.pipelines.api import pipeline

__all__ = ["pipeline"]
