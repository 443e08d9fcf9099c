"""Simulated clients: what users of a broker do to it, at random."""
