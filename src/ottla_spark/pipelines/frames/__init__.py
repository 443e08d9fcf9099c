"""The DataFrames of sources and steps."""
