"""The operating system: sockets, threads, signals, its clock and its files."""

import sys

if sys.platform == "win32":
    raise ImportError(
        "Ottla's broker runs on Linux and macOS, not on Windows. There, use WSL"
        " (https://learn.microsoft.com/windows/wsl/install) or a Linux container."
    )
