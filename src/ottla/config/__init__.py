"""Settings under Kafka's names: what they mean, what they may be, what they are."""
