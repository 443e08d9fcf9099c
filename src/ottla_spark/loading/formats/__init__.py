"""How values become columns, and how a record that does not fit shows."""
