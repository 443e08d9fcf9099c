"""A small blocking client for Kafka's protocol, for the commands and for Spark."""
