"""What a broker hosts: topics, partitions, and the fetches that follow them."""
