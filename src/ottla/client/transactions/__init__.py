"""Transactions: the requests of a producer; which are open, which hang, and ending them."""
