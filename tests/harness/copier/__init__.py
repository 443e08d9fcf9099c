"""Processes that copy records from topic to topic in transactions."""
