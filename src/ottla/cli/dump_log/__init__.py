"""`ottla dump-log`."""
