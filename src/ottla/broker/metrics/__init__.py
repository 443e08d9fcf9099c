"""Counts and times of requests, stalls of the event loop, and all metrics as text."""
