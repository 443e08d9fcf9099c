"""A source for `ottla load`: its tasks write records to Parquet files."""
