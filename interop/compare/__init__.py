"""The comparison of Ottla's answers with those of Apache Kafka, request by request."""
