"""`ottla load`."""
