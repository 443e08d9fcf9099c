"""Ids, topic partitions, topic names and error codes, used by every layer."""
