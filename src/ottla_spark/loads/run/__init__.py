"""One run of a load: setup, micro-batches, dead letters, result."""
