"""Pipelines: a YAML file that runs as Structured Streaming queries."""
