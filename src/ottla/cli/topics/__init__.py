"""`ottla topics`."""
