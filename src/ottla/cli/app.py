"""The commands put together, and how their failures reach the person.

Nothing that can be foreseen shows a traceback: wrong usage ends with 2, what a broker or
the machine refuses with 1, each with a line on stderr that says what to do.
"""

from __future__ import annotations

import os
import sys

from cyclopts import App, CycloptsError, Parameter

import ottla
from ottla.admin.errors import AdminError
from ottla.cli.errors import FAILED, INTERRUPTED, OK, USAGE, DataError, UsageError, complain

_HELP = """Kafka's sister: a commit log that speaks Kafka's protocol, in Python.

Start with `ottla up`. Every command explains itself with --help.
"""
_HELP_FLAGS = frozenset({"--help", "-h"})
_UNWRAPPED = 500
_COMMANDS = {
    "up": "ottla.cli.broker:up",
    "broker": "ottla.cli.broker:broker",
    "topics": "ottla.cli.topics.command:topics",
    "groups": "ottla.cli.groups.command:groups",
    "produce": "ottla.cli.produce.command:produce",
    "consume": "ottla.cli.consume.command:consume",
    "load": "ottla.cli.load.command:load",
    "pipeline": "ottla.cli.pipeline:pipeline",
    "dump-log": "ottla.cli.dump_log.command:dump_log",
}


def build_app(*, whole: bool) -> App:
    """The `ottla` command; without `whole`, what each command needs is imported when it runs."""
    app = App(
        name="ottla",
        help=_HELP,
        version=ottla.__version__,
        default_parameter=Parameter(negative=()),
        suppress_keyboard_interrupt=False,
    )
    for place, (name, path) in enumerate(_COMMANDS.items()):
        app.command(path, name=name, sort_key=place)
        if whole:
            app[name]  # imports it, so that the overview can describe it
    return app


def run(words: list[str]) -> int:
    """Run one command line; its exit code."""
    app = build_app(whole=not words or words[0] not in _COMMANDS)
    if not sys.stdout.isatty() and _shows_help(words):
        _help_in_plain_lines(app)
    try:
        result = app(words, exit_on_error=False, print_error=False, result_action="return_value")
    except CycloptsError as error:
        complain(f"{error} See `{_help_command(error)}`.")
        return USAGE
    except UsageError as error:
        complain(str(error))
        return USAGE
    except (AdminError, DataError) as error:
        complain(str(error))
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        silence_stdout()
        return OK
    return result if isinstance(result, int) else OK


def _shows_help(words: list[str]) -> bool:
    """Asked for, or because a command that has commands of its own was named alone."""
    return len(words) <= 1 or not _HELP_FLAGS.isdisjoint(words)


def _help_in_plain_lines(app: App) -> None:
    """For pipes and files: no boxes, and long lines left whole."""
    from rich.console import Console

    app.help_format = "plaintext"
    app.help_formatter = "plain"
    app.console = Console(width=_UNWRAPPED)


def silence_stdout() -> None:
    """Whoever read our output has gone: let nothing, at exit either, fail because of that."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _help_command(error: CycloptsError) -> str:
    return " ".join(("ottla", *(error.command_chain or ()), "--help"))
