"""The writer that Spark calls, and the producer behind it."""
