"""What `ottla pipeline` prints."""
