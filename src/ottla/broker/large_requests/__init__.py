"""Requests that name very many partitions or members, handled in slices."""
