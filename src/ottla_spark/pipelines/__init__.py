"""Pipelines from a small YAML file: checked, drawn and run as Structured Streaming queries."""
