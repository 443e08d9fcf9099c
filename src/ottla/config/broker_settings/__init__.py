"""Broker settings: a file for each component that reads them, `accepted.py` for the others."""
