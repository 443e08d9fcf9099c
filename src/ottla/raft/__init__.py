"""The metadata quorum: Kafka's Raft as a pure state machine (KIP-595, 630, 853, 996)."""
