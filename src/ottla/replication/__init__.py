"""Partitions on a broker: their roles, and the fetches that read them."""
