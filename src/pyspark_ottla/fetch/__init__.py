"""Fetches record batches from brokers, on executors."""
