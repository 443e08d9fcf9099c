"""The Spark data source and sink `ottla`: topics of Ottla, or of any Kafka, as DataFrames.

Spark imports every installed package named `pyspark_*` and registers its `DefaultSource`.
"""

from pyspark_ottla.data_source import DefaultSource

__all__ = ["DefaultSource"]
