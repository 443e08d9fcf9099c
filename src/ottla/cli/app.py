"""The table of commands, and how errors become messages and exit codes.

An expected error never shows a traceback. Wrong usage ends with exit code 2, a failure or a
broker's error with 1. Both print a line on stderr that says what to do.
"""

from __future__ import annotations

import os
import sys

from cyclopts import App, CycloptsError, Parameter

import ottla
from ottla.cli.errors import FAILED, INTERRUPTED, OK, USAGE, DataError, UsageError, complain
from ottla.client.errors import ClientError

_HELP = """Kafka's sister: a commit log that speaks Kafka's protocol, in Python.

Start with `ottla up`. To see the options of a command, add --help.
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
    """Return the `ottla` command. Unless `whole`, each command is imported only when it runs."""
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
            app[name]  # import it, so that the overview can describe it
    return app


def run(words: list[str]) -> int:
    """Run one command line and return its exit code."""
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
    except (ClientError, DataError) as error:
        complain(str(error))
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        silence_stdout()
        return OK
    return result if isinstance(result, int) else OK


def _shows_help(words: list[str]) -> bool:
    """Return True if this prints help: on request, or for a command without its subcommand."""
    return len(words) <= 1 or not _HELP_FLAGS.isdisjoint(words)


def _help_in_plain_lines(app: App) -> None:
    """Print help without boxes and without wrapping lines, for pipes and files."""
    from rich.console import Console

    app.help_format = "plaintext"
    app.help_formatter = "plain"
    app.console = Console(width=_UNWRAPPED)


def silence_stdout() -> None:
    """Redirect stdout to /dev/null after its reader closed the pipe, so that later writes work."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _help_command(error: CycloptsError) -> str:
    return " ".join(("ottla", *(error.command_chain or ()), "--help"))
