"""The remote tier of a broker: copies, remote reads, retention and deletion (KIP-405)."""
