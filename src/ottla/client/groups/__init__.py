"""Groups: list, describe and delete; members, offsets, lag."""
