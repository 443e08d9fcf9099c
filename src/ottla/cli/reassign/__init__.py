"""`ottla reassign`."""
