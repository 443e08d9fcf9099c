"""The entry point of the `ottla` command.

A broker must start fast, and importing the library that parses commands takes longer than
starting a broker. So plain `up` and `broker` commands are parsed by a few lines in `serve`.
Help, mistakes and all other commands go to the full parser.
"""

from __future__ import annotations

import sys


def main(arguments: list[str] | None = None) -> int:
    """Run the command in `arguments` (default: `sys.argv`) and return its exit code."""
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
