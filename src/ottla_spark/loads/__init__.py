"""Loads of topics into tables. Each run adds the records that arrived since the last one."""
