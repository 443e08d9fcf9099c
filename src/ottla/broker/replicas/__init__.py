"""The replicas on a broker: their logs, their fetchers, and the consumers that read from them."""
