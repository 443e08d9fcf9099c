"""Kafka's wire protocol: message classes for all versions, and their codecs."""
