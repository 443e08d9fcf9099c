"""The operating system: sockets, threads, signals, its clock and its files."""
