"""Connections of clients and peers, in memory."""
