"""Runs the same work against Ottla and Apache Kafka, and says how they compare."""
