"""A producer for one topic."""
