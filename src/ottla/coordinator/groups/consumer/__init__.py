"""Groups whose assignment is made by the broker (KIP-848)."""
