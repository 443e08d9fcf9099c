"""The edge: sockets, threads, signals and the operating system's clock and files."""
