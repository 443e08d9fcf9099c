"""Clusters of Ottla's and Apache Kafka's nodes."""
