"""A Spark program that copies one topic to another exactly once, and what kills it."""
