"""Decodes fetched record batches into Arrow batches, on executors."""
