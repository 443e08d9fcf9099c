"""The entry point of the `ottla` command.

A broker must start fast, and importing the library that parses commands takes longer than
starting a broker. So plain `up` and `broker` commands are parsed by a few lines in `serve`.
Help, mistakes and all other commands go to the full parser.
"""

from __future__ import annotations

import gc
import sys

_COLLECT_AFTER = 50_000  # allocations: a broker's start makes nearly nothing to collect
_HANDLE_INTERRUPTS = ("up", "broker", "load", "pipeline")


def main(arguments: list[str] | None = None) -> int:
    """Run the command in `arguments` (default: `sys.argv`) and return its exit code."""
    words = sys.argv[1:] if arguments is None else arguments
    if arguments is None and words and words[0] in _HANDLE_INTERRUPTS:
        _let_interrupts_end_the_process()
    if words and words[0] in ("up", "broker"):
        gc.set_threshold(_COLLECT_AFTER)
        from ottla.cli.module_cache import module_cache

        cache = module_cache()
        cache.use()
        from ottla.cli.serve import parse_plainly, serve

        request = parse_plainly(words)
        if request is not None:
            return serve(request, cache.renew_soon)
    from ottla.cli.app import run

    return run(words)


def _let_interrupts_end_the_process() -> None:
    """Let Ctrl-C end the process at once, as SIGTERM does, until the command handles both.

    As an exception, KeyboardInterrupt, it can be lost: Python ignores it in a finalizer. The module
    `signal` is not used here: it takes milliseconds to import, and Ctrl-C then ends in a traceback.
    """
    import _signal  # type: ignore[import-not-found]

    if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
        _signal.signal(_signal.SIGINT, _signal.SIG_DFL)


if __name__ == "__main__":
    sys.exit(main())
