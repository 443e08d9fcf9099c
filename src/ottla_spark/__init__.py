"""Data pipelines on Spark: sessions, loading topics into tables, streams from topic to topic."""
