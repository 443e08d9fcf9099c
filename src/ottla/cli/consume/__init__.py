"""`ottla consume`."""
