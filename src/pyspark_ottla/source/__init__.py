"""The reader that Spark calls: where a query starts and ends, and how it is split into tasks."""
