"""Reads the YAML file of a pipeline and reports mistakes with line numbers."""
