"""The entry point of the `ottla` command.

Starting a broker must be quick, and the library that parses commands takes longer to
import than the broker takes to start. So a plain `up` or `broker` is recognised here by a
few lines of its own; help, mistakes and every other command go to the full parser.
"""

from __future__ import annotations

import sys


def main(arguments: list[str] | None = None) -> int:
    """Run the command in `arguments` (default: those of the process); its exit code."""
    words = sys.argv[1:] if arguments is None else arguments
    if words and words[0] in ("up", "broker"):
        from ottla.cli.serve import parse_plainly, serve

        request = parse_plainly(words)
        if request is not None:
            return serve(request)
    from ottla.cli.app import run

    return run(words)


if __name__ == "__main__":
    sys.exit(main())
