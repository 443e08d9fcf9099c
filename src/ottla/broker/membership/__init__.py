"""A node as a member of its cluster: registration, heartbeats, its quorum, and other brokers."""
