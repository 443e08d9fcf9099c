"""The Spark data source and sink `ottla`: topics of Ottla, or of any Kafka, as DataFrames."""

from pyspark_ottla.source import DefaultSource

__all__ = ["DefaultSource"]
