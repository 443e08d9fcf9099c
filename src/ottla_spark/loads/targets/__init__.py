"""The kinds of table that loads and pipelines write: one file for each."""
