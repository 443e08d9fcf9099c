"""A consumer without a group."""
