"""The words of the domain: ids, offsets, topic partitions, errors."""
