"""Starts the queries of a pipeline and watches them until they end."""
