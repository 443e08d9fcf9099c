"""Whether an answer of the broker is right."""
