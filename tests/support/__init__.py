"""Code that tests without real clients and processes share. Fakes are in `ottla.testing`."""
