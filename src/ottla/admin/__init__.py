"""A small blocking client of the Kafka protocol: what the commands need, no more."""
