"""Metadata: the records of its log, and the image of the cluster they make."""
