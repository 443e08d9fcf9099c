"""Runs the same workloads against Ottla and Apache Kafka, and compares them."""
