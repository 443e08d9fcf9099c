"""Decoders that turn record values into columns."""
