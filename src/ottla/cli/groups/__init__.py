"""`ottla groups`."""
