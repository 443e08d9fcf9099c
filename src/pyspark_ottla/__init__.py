"""The Spark data source and sink `ottla`: topics of Ottla, or of any Kafka, as DataFrames."""
