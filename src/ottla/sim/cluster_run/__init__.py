"""Seeded runs of a whole cluster."""
