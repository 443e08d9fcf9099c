"""Checks that run before a pipeline starts."""
