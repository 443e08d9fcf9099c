"""`ottla transactions`: its commands are in the other modules of this package."""

from __future__ import annotations

from cyclopts import App

from ottla.cli.transactions.hanging_transactions import abort, find_hanging
from ottla.cli.transactions.transactional_ids import describe, list_

transactions = App(name="transactions", help="Show transactions, and end those that hang.")
transactions.command(list_, name="list", sort_key=1)
transactions.command(describe, sort_key=2)
transactions.command(find_hanging, name="find-hanging", sort_key=3)
transactions.command(abort, name="abort", sort_key=4)
