"""Loading topics into tables: incremental, restartable, each record exactly once."""
