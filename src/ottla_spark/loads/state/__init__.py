"""What a load keeps between runs, and the files it keeps it in."""
